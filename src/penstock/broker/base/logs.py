"""The broker's log: structured events, one per line, to one stream.

A module gets its logger once: `log = get_logger("flusher")`, then `log.info("flushed", bytes=n)`. Nothing is
written before `configure` is called, so a broker inside an application's process stays silent. Events carry
names, numbers and addresses, never the contents of records.

A broker process writes its log with `configure_queued`: lines go through a bounded queue to a thread, so
a reader that stalls does not hold the event loop. `configure` writes each line at once, for tests.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from time import time
from typing import Any, Final, TextIO, TypeAlias

from penstock.broker.base.line_writer import LineWriter
from penstock.broker.base.log_events import LogEvent, LogFormat, Renderer, renderer
from penstock.observability.limited_log import EVENTS_PER_MINUTE, LimitedLog

__all__ = [
    "LEVELS",
    "ROOT",
    "LogFormat",
    "Logger",
    "configure",
    "configure_queued",
    "dropped_lines",
    "end",
    "flush",
    "get_logger",
    "has_colours",
    "levels",
    "limited_warnings",
    "put_line",
    "set_level",
]

_Write: TypeAlias = Callable[..., None]

#: from the least severe to the most
LEVELS = ("debug", "info", "warning", "error")
#: the name of the level that applies to components without their own level
ROOT = "root"
#: how long the end of a process waits for a reader that stalls
_FLUSH_S: Final = 2.0


def _ignore(event: str, **fields: object) -> None:
    """The writer of a level that is filtered out: costs only the call."""


class Logger:
    """Writes one component's events: `log.warning("event", field=value)`; `exc_info=True` adds a traceback.

    Each level is an attribute that `configure` sets to a writer or to a function that does nothing.
    """

    __slots__ = ("component", "debug", "error", "info", "warning")

    def __init__(self, component: str) -> None:
        self.component = component
        self.debug: _Write = _ignore
        self.info: _Write = _ignore
        self.warning: _Write = _ignore
        self.error: _Write = _ignore


_loggers: dict[str, Logger] = {}
_levels: dict[str, str] = {ROOT: "info"}
#: takes each event; None before the log is configured
_take: Callable[[LogEvent], object] | None = None
#: the queue of a process whose lines are written by a thread
_lines: LineWriter | None = None


def get_logger(component: str) -> Logger:
    """The component's logger; the same object every time."""
    logger = _loggers.get(component)
    if logger is None:
        logger = _loggers[component] = Logger(component)
        _attach(logger)
    return logger


def limited_warnings(component: str, per_minute: int = EVENTS_PER_MINUTE) -> LimitedLog:
    """Writes warnings that clients can cause as often as they like, for a caller on the event loop."""
    logger = get_logger(component)
    # Looked up at each event: `configure` replaces the writers.
    return LimitedLog(
        lambda event, **fields: logger.warning(event, **fields),
        lambda: asyncio.get_running_loop().time(),
        per_minute,
    )


def configure(level: str = "info", format: LogFormat = "text", stream: TextIO | None = None) -> None:
    """Write events of `level` and above to `stream` (standard error), each at once.

    `text` is key=value pairs, `json` an object per line, `human` lines for a terminal.
    """
    global _take, _lines
    to = stream or sys.stderr
    render = renderer(format, has_colours(to))

    def take(event: LogEvent) -> None:
        to.write(render(event) + "\n")
        to.flush()

    _take, _lines = take, None
    set_level(ROOT, level)


def configure_queued(
    level: str, format: LogFormat, write: Callable[[bytes], None], *, coloured: bool = False
) -> LineWriter:
    """Write events with `write`, which may block, in a thread. The end of the process flushes the queue."""
    global _take, _lines
    render = renderer(format, coloured)
    lines = LineWriter("log", write, partial(_gap_line, render))

    def take(event: LogEvent) -> None:
        lines.put(event.level, event.size, lambda: _encoded(render(event)))

    if _lines is None:
        atexit.register(flush)
    _take, _lines = take, lines
    set_level(ROOT, level)
    return lines


def put_line(line: bytes, level: str) -> None:
    """Write a line that another process has rendered; dropped if the log is not configured."""
    if _lines is not None:
        _lines.put(level, len(line), lambda: line + b"\n")


def flush(timeout_s: float = _FLUSH_S) -> bool:
    """Wait until all lines are written; false if the reader stalls."""
    return _lines is None or _lines.flush(timeout_s)


def end() -> bool:
    """Flush for the last time: the end of the process does not wait for a reader that stalls once more."""
    atexit.unregister(flush)
    return flush()


def dropped_lines() -> Mapping[str, int]:
    """The number of lines that the log has lost, by level."""
    return {} if _lines is None else _lines.dropped


def _gap_line(render: Renderer, counts: Mapping[str, int]) -> bytes:
    fields = {"dropped": sum(counts.values()), **counts, "reason": "the reader of the log is too slow"}
    return _encoded(render(LogEvent(time(), "warning", "logs", "log_lines_dropped", fields)))


def _encoded(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"


def levels() -> dict[str, str]:
    """The level of every component, and of `ROOT`."""
    return {ROOT: _levels[ROOT]} | {name: _levels.get(name, _levels[ROOT]) for name in sorted(_loggers)}


def set_level(component: str, level: str | None) -> None:
    """Set the level of a component or of `ROOT` until the process ends; None removes a component's level."""
    if level is None:
        _levels.pop(component, None)
    else:
        _levels[component] = level
    for logger in _loggers.values():
        _attach(logger)


def _attach(logger: Logger) -> None:
    if _take is not None:
        threshold = LEVELS.index(_levels.get(logger.component, _levels[ROOT]))
        for nth, name in enumerate(LEVELS):
            setattr(logger, name, _write_of(_take, name, logger.component) if nth >= threshold else _ignore)


def _write_of(take: Callable[[LogEvent], object], level: str, component: str) -> _Write:
    def write(event: str, **fields: Any) -> None:
        take(LogEvent(time(), level, component, event, fields))

    return write


def has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colours; NO_COLOR switches them off (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
