"""Render the pages that come from code: `configuration.md` from config keys, `metrics.md` from metrics,
`cli-reference.md` from commands, the index of decisions, and the numbers of `penstock plan` and of results on
other pages; the dashboards and alert rules of the Helm chart.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from docs import commands, decisions, measured, planned
from penstock.cli.commands.dashboards import write_files
from penstock.model.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, UpdateMode
from penstock.model.config.declared import TOPIC_SHORT_NAMES
from penstock.model.config.foreign_keys import IGNORED, IGNORED_PREFIXES, REFUSED
from penstock.model.config.sections import SECTION_KEYS, SectionKey
from penstock.observability.family import Family
from penstock.observability.kafka_families import KAFKA_GROUPS
from penstock.observability.metrics import ANALOG, BACKUP, GROUPS

PAGE = Path(__file__).parent / "configuration.md"
METRICS_PAGE = Path(__file__).parent / "metrics.md"
#: dashboards and alert rules in the Helm chart
CHART_FILES = Path(__file__).parents[1] / "deploy/helm/penstock/files"

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
<!-- Rendered by `make pages` from the tables of config keys; edit those, not this page. -->
# Configuration

Configs have Kafka's names, defaults and limits, so Kafka's documentation applies. Penstock's own configs
begin with `penstock.`. A config that is accepted without an effect is marked; a broker that is started
with one logs `setting_without_effect`.

## Sources

A broker combines its configs from these sources at start. Later sources override earlier ones:

1. the default;
2. a file: `penstock up --config FILE`, or `PENSTOCK_CONFIG` in the environment; YAML, or Kafka's
   `.properties`;
3. the environment: `PENSTOCK_` and the name in capitals with `_` for `.`, so `log.retention.hours` is
   `PENSTOCK_LOG_RETENTION_HOURS`, `storage.segment_size` is `PENSTOCK_STORAGE_SEGMENT_SIZE`, and
   `penstock.flush` is `PENSTOCK_FLUSH`;
4. flags: `--id`, `--host`, `--port`, `--data`, `--memory`, `--log-level`, `--log-format`;
5. `--set KEY=VALUE`, for any name.

Configs that are set at runtime, for one broker or for the cluster (`penstock config set`, or any Kafka
admin tool), override all of these and are stored in the cluster's metadata. `min.insync.replicas` is
stored there from the first start of a cluster on, so that all nodes use the same value
([cluster](cluster.md)).

A source also overrides other names for the same setting in an earlier source:
`PENSTOCK_LOG_RETENTION_HOURS` overrides `log.retention.ms` of a file, `--port` overrides its `listeners`, and
`--data` its `penstock.memory`.

An unknown name or an invalid value stops the broker at start, with one line that names the error and a
valid alternative. An unknown environment variable is an error if it is similar to a known one. Variables
that Kubernetes sets for a service called `penstock` are ignored, and so are `PENSTOCK_BOOTSTRAP` and
`PENSTOCK_DEBUG`, which are for the command line.

`penstock cluster start` reads its file, the environment and `--set` once, and writes a complete file for each
broker. From then on the broker starts with that file.

## Config files

Settings are grouped in sections. Sizes are like `512KB` or `1GB` (units of 1,024), durations like `5ms`,
`1s`, `24h`, `7d` or `1h30m`:

```yaml
{example}```

| setting | config | |
| --- | --- | --- |
{settings}

A broker ignores refused settings of a file and logs `setting_refused` with the reason for each. In the
environment and in `--set` they are errors.

With `cluster.bootstrap_servers`, and a different `broker.id` on each machine, the file above defines a
cluster. The brokers in the list have the ids 1, 2, 3 (`0@host:9092` sets another id). The first five are
voters. Each broker advertises its address in the list to clients. A broker that is not in the list joins
without a vote. For other layouts use `listeners`, `advertised.listeners` and `controller.quorum.voters`,
as in Kafka.

Declared topics are created at start, by the first broker that is ready. It waits until all voters are
up, or five seconds, so that topics are spread over all brokers. Topics that need more brokers are
created when these are up. An existing topic is not changed; differences from the file are logged as
`topic_differs`. A topic's settings are `partitions`, `replication_factor`, {topic_names}, or any [topic
config](#topics) by Kafka's name.

Kafka's names can be used beside the sections, nested or not. Lists are YAML lists:

```yaml
log:
  dirs: [/data/1, /data/2]
  retention.hours: 24
penstock.flush: group
```

Topics and groups inherit configs that they do not set from the broker config in the column "broker default".
"""

_FOREIGN = """
## Configs that only Kafka has

A file may have configs of Apache Kafka's brokers that have nothing to act on here: the broker starts without
them, and logs `setting_without_effect` with the reason for each. Configs that guard something stop the start,
and the error names what to set instead. Every config of Apache Kafka 4.3.1 is either in the tables above or
here. For one listener, `listener.name.NAME.` stands before the name.
"""

_UPDATES = {
    UpdateMode.READ_ONLY: "at start",
    UpdateMode.PER_BROKER: "at runtime, per broker",
    UpdateMode.CLUSTER_WIDE: "at runtime",
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
            _FOREIGN,
            _foreign_table(),
            "",
        ]
    )


def _foreign_table() -> str:
    """The configs that are ignored, one row for each reason, and those that are refused."""
    reasons: dict[str, list[str]] = {}
    for name, reason in (
        *IGNORED.items(),
        *((f"{prefix}*", why) for prefix, why in IGNORED_PREFIXES.items()),
    ):
        reasons.setdefault(reason, []).append(f"`{name}`")
    rows = [(", ".join(names), "ignored", reason) for reason, names in reasons.items()]
    for name, guard in REFUSED.items():
        allowed = "".join(f", except `{value}`" for value in guard.harmless)
        rows.append((f"`{name}`", f"refused{allowed}", guard.reason))
    return _table(("config", "", "reason"), rows)


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
    return _table(("config", "type", "default", "accepts", "changes", "description"), sorted(rows))


def _overrides_table(keys: Iterable[ConfigKey]) -> str:
    rows = [
        (*_common(key), ", ".join(f"`{synonym.name}`" for synonym in key.synonyms), key.documentation)
        for key in keys
        if not key.internal
    ]
    return _table(("config", "type", "default", "accepts", "broker default", "description"), sorted(rows))


def _common(key: ConfigKey) -> tuple[str, str, str, str]:
    default = key.format(key.default)
    shown = "none" if default is None else f"`{default}`" if default else "empty"
    return f"`{key.name}`", key.type.name.lower(), shown, key.limits()


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


_METRICS = """\
<!-- Rendered by `make pages` from the metric tables; edit those, not this page. -->
# Metrics

[Observability](observability.md) describes the port that serves these metrics. A family without samples is
left out of the page. Counters start at 0 when the broker starts, and do not depend on which broker leads a
partition.
"""


def _families(title: str, families: Iterable[Family]) -> str:
    rows = "".join(
        f"| `{family.name}` | {family.kind} | {', '.join(family.labels)} | {family.help} |\n"
        for family in families
    )
    return f"\n### {title}\n\n| name | type | labels | |\n| --- | --- | --- | --- |\n{rows}"


def render_metrics() -> str:
    own = "".join(_families(title, families) for title, families in GROUPS.items())
    kafka = "".join(_families(title, families) for title, families in KAFKA_GROUPS.items())
    analog = _families("Names of the original design", ANALOG)
    backup = _families("Of `penstock backup run`", BACKUP)
    return f"{_METRICS}\n## `/metrics`\n{own}{analog}\n## `/metrics/kafka`\n{kafka}\n## Backups\n{backup}"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
    METRICS_PAGE.write_text(render_metrics(), encoding="utf-8")
    decisions.write()
    commands.PAGE.write_text(commands.render_commands(), encoding="utf-8")
    planned.write()
    measured.write()
    write_files(CHART_FILES)
