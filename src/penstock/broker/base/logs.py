"""The broker's log: structured events, one per line, to one stream.

A module gets its logger once: `log = get_logger("flusher")`, then `log.info("flushed", bytes=n)`. Nothing is
written before `configure` is called, so a broker inside an application's process stays silent. structlog's
global configuration belongs to the application and is not changed. Events carry names, numbers and addresses,
never the contents of records.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Any, Literal, TextIO, TypeAlias

from penstock.observability.limited_log import EVENTS_PER_MINUTE, LimitedLog

__all__ = [
    "LEVELS",
    "ROOT",
    "LogFormat",
    "Logger",
    "configure",
    "get_logger",
    "levels",
    "limited_warnings",
    "set_level",
]

LogFormat: TypeAlias = Literal["human", "text", "json"]
_Write: TypeAlias = Callable[..., None]

#: from the least severe to the most
LEVELS = ("debug", "info", "warning", "error")
#: the name of the level that applies to components without their own level
ROOT = "root"


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
_writer: Callable[[str], dict[str, _Write]] | None = None


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
    """Write events of `level` and above to `stream` (standard error).

    `text` is key=value pairs, `json` an object per line, `human` lines for a terminal.
    """
    global _writer
    _writer = _structlog_writer(format, stream or sys.stderr)
    set_level(ROOT, level)


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
    if _writer is not None:
        threshold = LEVELS.index(_levels.get(logger.component, _levels[ROOT]))
        for name, write in _writer(logger.component).items():
            setattr(logger, name, write if LEVELS.index(name) >= threshold else _ignore)


def _has_colours(stream: TextIO) -> bool:
    """Whether the stream is a terminal with colours; NO_COLOR switches them off (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _structlog_writer(format: LogFormat, stream: TextIO) -> Callable[[str], dict[str, _Write]]:
    import structlog  # imported only by a process that writes a log

    renderer: Any
    if format == "json":
        renderer = structlog.processors.JSONRenderer()
    elif format == "human":
        from penstock.broker.base.log_lines import human_line

        renderer = human_line(_has_colours(stream))
    else:
        renderer = structlog.processors.LogfmtRenderer(
            key_order=["timestamp", "level", "component", "event"], bool_as_flag=False
        )
    log = structlog.wrap_logger(
        structlog.WriteLogger(stream),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(0),
    )

    def writes(component: str) -> dict[str, _Write]:
        bound = log.bind(component=component)
        return {name: getattr(bound, name) for name in LEVELS}

    return writes
