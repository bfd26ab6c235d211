"""The levels of the broker's loggers, as configs of the resource BROKER_LOGGER.

Altered levels last until the process ends. On the wire the levels have Kafka's names. This broker treats
TRACE as DEBUG and FATAL as ERROR.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from penstock.broker.base import logs
from penstock.metadata.configs import Alteration, Operation
from penstock.model.config import ConfigEntry, ConfigSource, ConfigType, selected
from penstock.model.errors import InvalidConfig, InvalidRequest

__all__ = ["alter_loggers", "describe_loggers"]

_TO_KAFKA: Final = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
_FROM_KAFKA: Final = {kafka: level for level, kafka in _TO_KAFKA.items()} | {
    "TRACE": "debug",
    "FATAL": "error",
}


def describe_loggers(names: Collection[str] | None) -> list[ConfigEntry]:
    levels = logs.levels()
    return [
        ConfigEntry(
            name=name,
            value=_TO_KAFKA[level],
            source=ConfigSource.DYNAMIC_BROKER_LOGGER,
            type=ConfigType.STRING,
            read_only=False,
            sensitive=False,
            documentation="",
            synonyms=(),
        )
        for name, level in ((name, levels[name]) for name in selected(levels, names))
    ]


def alter_loggers(alterations: Sequence[Alteration], validate_only: bool) -> None:
    """Apply all alterations, or none if one of them is invalid."""
    known = logs.levels()
    changes: list[tuple[str, str | None]] = []
    for name, operation, value in alterations:
        if operation not in (Operation.SET, Operation.DELETE):
            raise InvalidRequest("A logger's level can be set and deleted, nothing else")
        if name not in known:
            raise InvalidConfig(f"Logger {name} does not exist!")
        if operation == Operation.SET:
            if value not in _FROM_KAFKA:
                raise InvalidConfig(f"{value} is not a log level: {', '.join(sorted(_FROM_KAFKA))} are")
            changes.append((name, _FROM_KAFKA[value]))
        elif name == logs.ROOT:
            raise InvalidRequest(f"Removing the log level of the {logs.ROOT} logger is not allowed")
        else:
            changes.append((name, None))
    if not validate_only:
        for name, level in changes:
            logs.set_level(name, level)
