"""Render the pages that come from code: `docs/configuration.md` from the tables of config keys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.model.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, UpdateMode
from penstock.model.config.declared import TOPIC_SHORT_NAMES
from penstock.model.config.sections import SECTION_KEYS, SectionKey

PAGE = Path(__file__).parent / "configuration.md"

#: A whole config file; the tests read it.
EXAMPLE = """\
broker:
  id: 1
  host: "0.0.0.0"
  port: 9092
  data_dir: "/data/message-queue"

cluster:
  bootstrap_servers: ["broker-1:9092", "broker-2:9092", "broker-3:9092"]

storage:
  segment_size: "1GB"
  segment_time: "24h"
  retention_time: "7d"
  retention_size: "100GB"
  fsync_interval: "1s"

performance:
  max_connections: 10000
  socket_send_buffer: "100KB"
  socket_receive_buffer: "100KB"
  max_message_size: "1MB"

replication:
  default_replication_factor: 3
  min_insync_replicas: 2
  replica_lag_time_max: "10s"

topics:
  gpu-telemetry:
    partitions: 12
    replication_factor: 3
    retention_time: "30d"
    compression_type: "snappy"
  system-metrics:
    partitions: 6
"""

_INTRODUCTION = """\
<!-- Rendered by `make docs` from the tables of config keys; edit those, not this page. -->
# Configuration

Configs have Kafka's names, defaults and limits, so what is known about Kafka's holds here. Penstock's own
begin with `penstock.`.

## Where they come from

A broker puts its configs together when it starts. The later goes before the earlier:

1. the default;
2. a file: `penstock up --config FILE`, or `PENSTOCK_CONFIG` in the environment; YAML, or Kafka's
   `.properties`;
3. the environment: `PENSTOCK_` and the name in capitals with `_` for `.`, so `log.retention.hours` is
   `PENSTOCK_LOG_RETENTION_HOURS`, `storage.segment_size` is `PENSTOCK_STORAGE_SEGMENT_SIZE`, and
   `penstock.flush` is `PENSTOCK_FLUSH`;
4. flags: `--id`, `--host`, `--port`, `--data`, `--memory`, `--log-level`, `--log-format`;
5. `--set KEY=VALUE`, for any name.

What was set while the broker ran, for it or for the cluster (`penstock config set`, or any Kafka admin
tool), goes before all of these and is in the cluster's metadata. `min.insync.replicas` is there from a
cluster's first start on, so that all nodes count alike ([cluster](cluster.md)).

A source also goes before what a weaker one says of the same thing by another name:
`PENSTOCK_LOG_RETENTION_HOURS` before a file's `log.retention.ms`, `--port` before its `listeners`, `--data`
before its `penstock.memory`.

A name that is not known, or a value that is not valid, stops the broker at start with a line that says what
would be right. An unknown variable does so if it nearly is one of these; what Kubernetes sets for a service
called `penstock` does not count, nor do `PENSTOCK_BOOTSTRAP` and `PENSTOCK_DEBUG`, which are for the
command line.

`penstock cluster start` reads its file, the environment and `--set` once, and writes for each broker a file
that has all of it; from then on that file is what the broker starts with.

## Config files

Settings stand in sections, with sizes (`512KB`, `1GB`: by 1,024) and durations (`5ms`, `1s`, `24h`, `7d`,
`1h30m`):

```yaml
{example}```

| setting | what it sets | |
| --- | --- | --- |
{settings}

A broker starts without the settings that are refused, and logs each as `setting_refused` with the reason. In
the environment and in `--set` they are errors.

With `cluster.bootstrap_servers` and a `broker.id` of its own on each machine, the file above makes a
cluster: the brokers in the list are 1, 2, 3 (`0@host:9092` gives another number), the first five of them
vote, and each tells clients the address that it has there. One that is not in the list joins without a
vote. Where that is not enough, `listeners`, `advertised.listeners` and `controller.quorum.voters` say it in
Kafka's way.

Topics are created at start, by whichever broker comes first, once all voters are there or five seconds have
passed, so that they are spread over all; those that need more brokers than there are wait for them. A
topic that exists is left as it is, and what differs from the file is logged as
`topic_differs`. A topic's settings are `partitions`, `replication_factor`, {topic_names}, or any [topic
config](#topics) by Kafka's name.

Kafka's names can stand beside the sections, nested as you like, and a list is a list:

```yaml
log:
  dirs: [/data/1, /data/2]
  retention.hours: 24
penstock.flush: group
```

Topics and groups take what they do not set themselves from the broker config named in their table.
"""

_UPDATES = {
    UpdateMode.READ_ONLY: "at start",
    UpdateMode.PER_BROKER: "any time, per broker",
    UpdateMode.CLUSTER_WIDE: "any time",
}


def render() -> str:
    """The whole page."""
    own = [key for key in BROKER_KEYS.values() if key.name.startswith("penstock.")]
    kafkas = [key for key in BROKER_KEYS.values() if key not in own]
    return "\n".join(
        [
            _introduction(),
            "## Penstock's own\n",
            _broker_table(own),
            "\n## Topics\n",
            _overrides_table(TOPIC_KEYS.values()),
            "\n## Groups\n",
            _overrides_table(GROUP_KEYS.values()),
            "\n## Brokers\n",
            _broker_table(kafkas),
            "",
        ]
    )


def _introduction() -> str:
    return _INTRODUCTION.format(
        example=EXAMPLE,
        settings="\n".join(_section_row(key) for key in SECTION_KEYS.values()),
        topic_names=", ".join(f"`{name}`" for name in TOPIC_SHORT_NAMES),
    )


def _section_row(key: SectionKey) -> str:
    if key.config is None:
        return f"| `{key.name}` | refused | {key.note} |"
    sets = f"`{key.config}`" if key.config in BROKER_KEYS else ""
    return f"| `{key.name}` | {sets} | {key.note} |"


def _broker_table(keys: Iterable[ConfigKey]) -> str:
    rows = [(*_common(key), _UPDATES[key.update_mode], key.documentation) for key in keys if not key.internal]
    return _table(("config", "type", "default", "accepts", "changes", "what it does"), sorted(rows))


def _overrides_table(keys: Iterable[ConfigKey]) -> str:
    rows = [
        (*_common(key), ", ".join(f"`{synonym.name}`" for synonym in key.synonyms), key.documentation)
        for key in keys
        if not key.internal
    ]
    return _table(("config", "type", "default", "accepts", "from the broker's", "what it does"), sorted(rows))


def _common(key: ConfigKey) -> tuple[str, str, str, str]:
    default = key.format(key.default)
    shown = "none" if default is None else f"`{default}`" if default else "empty"
    return f"`{key.name}`", key.type.name.lower(), shown, key.limits()


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
