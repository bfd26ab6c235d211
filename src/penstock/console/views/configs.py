"""Configs with their sources, and the difference that a change would make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from penstock.model.config.broker_keys import BROKER_KEYS
from penstock.model.config.topic_keys import TOPIC_KEYS
from penstock.wire.apis.describe_configs import DescribeConfigsResourceResult, DescribeConfigsResult

__all__ = ["config_diff", "config_rows"]

_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "cluster default",
    4: "broker file",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
_DEFAULT: Final = 5
_TYPES: Final = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}


_UNITS: Final = {".ms": "ms", ".bytes": "bytes"}


def config_rows(result: DescribeConfigsResult) -> list[dict[str, Any]]:
    """All configs by name. `set` marks those of the resource itself; `inherited` is the value otherwise."""
    return [_row(config) for config in sorted(result.configs, key=lambda config: config.name)]


def _row(config: DescribeConfigsResourceResult) -> dict[str, Any]:
    key = TOPIC_KEYS.get(config.name) or BROKER_KEYS.get(config.name)
    others = [synonym for synonym in config.synonyms if synonym.source != config.config_source]
    is_set = config.config_source in (1, 2, 8)
    inherited = (others[0].value if others else None) if is_set else config.value
    return {
        "name": config.name,
        "value": None if config.is_sensitive else config.value,
        "source": _SOURCES.get(config.config_source, "unknown"),
        "set": is_set,
        "inherited": None if config.is_sensitive else inherited,
        "read_only": config.read_only,
        "sensitive": config.is_sensitive,
        "type": _TYPES.get(config.config_type, "unknown"),
        "documentation": config.documentation or ("" if key is None else key.documentation),
        "unit": _unit(config.name),
        # Of the elements, for a list.
        "values": list(key.choices) if key is not None and key.choices else None,
    }


def _unit(name: str) -> str | None:
    """The unit of a value, which the names of Kafka's configs end with."""
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)


def config_diff(
    rows: list[dict[str, Any]], changed: Mapping[str, str | None]
) -> tuple[list[dict[str, Any]], dict[str, str | None]]:
    """The lines of a change (name, before, after, note), and the changes that have an effect.

    None returns a config to its inherited value. A value that is set already is left out.
    """
    known = {row["name"]: row for row in rows}
    lines, effective = [], {}
    for name, value in sorted(changed.items()):
        row = known.get(name)
        before = None if row is None else row["value"]
        is_set = row is not None and row["set"]
        if (value is None and not is_set) or (value is not None and is_set and value == before):
            continue
        after = value if value is not None else (row or {}).get("inherited")
        note = "unknown config" if row is None else "returns to the default" if value is None else ""
        lines.append({"name": name, "before": before, "after": after, "note": note})
        effective[name] = value
    return lines, effective
