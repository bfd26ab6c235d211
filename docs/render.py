"""Render the pages that come from code: `docs/configuration.md` from the tables of config keys."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from penstock.model.config import BROKER_KEYS, GROUP_KEYS, TOPIC_KEYS, ConfigKey, UpdateMode

PAGE = Path(__file__).parent / "configuration.md"

_INTRODUCTION = """\
<!-- Rendered by `make docs` from the tables of config keys; edit those, not this page. -->
# Configuration

Configs have Kafka's names, defaults and limits, so what is known about Kafka's holds here. Penstock's own
begin with `penstock.`.

A broker reads them, the later going before the earlier, from

1. a file: `penstock up --config FILE`, either YAML or Kafka's `.properties`;
2. flags: `--port`, `--data`, `--memory`, and `--set KEY=VALUE` for any other;
3. what was set while it ran, for it or for the cluster (`penstock config set`, or any Kafka admin tool).

In YAML, nested names are joined with dots, and a list is a list:

```yaml
log:
  dirs: [/data/1, /data/2]
  retention.hours: 24
penstock.flush: group
```

A name that is not known, or a value that is not valid, stops the broker at start with a line that says what
would be right. Topics and groups take what they do not set themselves from the broker config named in their
table.
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
            _INTRODUCTION,
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


def _broker_table(keys: Iterable[ConfigKey]) -> str:
    rows = [(*_common(key), _UPDATES[key.update_mode], key.doc) for key in keys if not key.internal]
    return _table(("config", "type", "default", "accepts", "changes", "what it does"), sorted(rows))


def _overrides_table(keys: Iterable[ConfigKey]) -> str:
    rows = [
        (*_common(key), ", ".join(f"`{synonym.name}`" for synonym in key.synonyms), key.doc)
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
