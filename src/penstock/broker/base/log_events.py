"""Log events on their way to a line: taken as they are in the caller's thread, rendered in another one.

The caller's thread keeps only immutable values: a container is copied, a traceback is formatted, and any
other object is represented by its texts. Rendering, which costs ten times as much, is left to the writer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import PurePath
from traceback import format_exception
from types import TracebackType
from typing import Any, Final, Literal, TypeAlias

__all__ = ["LogEvent", "LogFormat", "Renderer", "renderer"]

LogFormat: TypeAlias = Literal["human", "text", "json"]
#: makes a line, without its end, of an event
Renderer: TypeAlias = Callable[["LogEvent"], str]

_UNCHANGING: Final = (str, int, float, bool, type(None), bytes, PurePath)
#: the size of a value that is not a text; an estimate
_VALUE_BYTES: Final = 40


class _Texts:
    """The texts of an object at the time of an event."""

    __slots__ = ("_repr", "_str")

    def __init__(self, value: object) -> None:
        self._str, self._repr = str(value), repr(value)

    def __str__(self) -> str:
        return self._str

    def __repr__(self) -> str:
        return self._repr


class LogEvent:
    """An event with its time, and fields that do not change any more."""

    __slots__ = ("component", "event", "fields", "level", "size", "time_s")

    def __init__(self, time_s: float, level: str, component: str, event: str, fields: dict[str, Any]) -> None:
        self.time_s = time_s
        self.level = level
        self.component = component
        self.event = event
        size = len(event)
        if "exc_info" in fields:
            traceback = _traceback(fields.pop("exc_info"))
            if traceback is not None:
                fields["exception"] = traceback
        for name, value in fields.items():
            kind = value.__class__
            if kind is str:
                size += len(value)
            elif kind is not int:
                fields[name] = _kept(value)
                size += len(value) * _VALUE_BYTES if isinstance(value, (list, tuple, dict)) else 0
            size += len(name) + _VALUE_BYTES
        self.fields = fields
        #: an estimate of the bytes in memory
        self.size = size

    def described(self) -> dict[str, Any]:
        """All fields of the line in their order."""
        stamp = datetime.fromtimestamp(self.time_s, UTC).isoformat(timespec="microseconds")
        return {
            "timestamp": stamp.replace("+00:00", "Z"),
            "level": self.level,
            "component": self.component,
            "event": self.event,
            **self.fields,
        }


def _kept(value: Any) -> Any:
    """The value, or a copy if it can change."""
    if isinstance(value, _UNCHANGING):
        return value
    if isinstance(value, Mapping):
        return {_kept(name): _kept(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_kept(each) for each in value]
    if isinstance(value, tuple):
        return tuple(_kept(each) for each in value)
    return _Texts(value)


def _traceback(error: Any) -> str | None:
    """The traceback of `exc_info`: an exception, the three parts of one, or true for the current one."""
    if isinstance(error, BaseException):
        found: tuple[type[BaseException], BaseException, TracebackType | None] | Any
        found = (type(error), error, error.__traceback__)
    elif isinstance(error, tuple):
        found = error
    elif error:
        found = sys.exc_info()
    else:
        return None
    return "".join(format_exception(*found)).rstrip("\n") if found[1] is not None else None


def renderer(format: LogFormat, coloured: bool) -> Renderer:
    """`text` is key=value pairs, `json` an object per line, `human` lines for a terminal."""
    import structlog  # imported only by a process that writes a log

    if format == "human":
        from penstock.broker.base.log_lines import human_line

        human = human_line(coloured)
        return lambda event: human(None, event.level, event.described())
    if format == "json":
        as_json = structlog.processors.JSONRenderer()
        return lambda event: str(as_json(None, event.level, event.described()))
    as_text = structlog.processors.LogfmtRenderer(
        key_order=["timestamp", "level", "component", "event"], bool_as_flag=False
    )
    return lambda event: _printable(as_text(None, event.level, event.described()))


def _printable(line: str) -> str:
    """A line without control characters: clients choose texts, and terminals obey control characters."""
    if line.isprintable():
        return line
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in line
    )
