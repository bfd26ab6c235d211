"""Log events as lines for a terminal: local time, level, component, event, fields.

A field's value may come from a client, so control characters in it never reach the terminal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from datetime import datetime
from typing import Any, Final

__all__ = ["human_line"]

_RESET: Final = "\x1b[0m"
_DIM: Final = "\x1b[2m"
_BOLD: Final = "\x1b[1m"
_LEVEL_COLOURS: Final[Mapping[str, str]] = {
    "debug": _DIM,
    "info": "\x1b[32m",
    "warning": "\x1b[33m",
    "error": "\x1b[1;31m",
}
_NAMED: Final = ("timestamp", "level", "component", "event", "exception")


def human_line(coloured: bool) -> Callable[[Any, str, MutableMapping[str, Any]], str]:
    """A structlog processor that renders an event; a traceback follows on separate lines."""

    def paint(colour: str, text: str) -> str:
        return f"{colour}{text}{_RESET}" if coloured else text

    def render(logger: Any, method: str, event: MutableMapping[str, Any]) -> str:
        level = str(event["level"])
        fields = "".join(
            f" {paint(_DIM, f'{name}=')}{_shown(value)}"
            for name, value in event.items()
            if name not in _NAMED
        )
        time = datetime.fromisoformat(event["timestamp"]).astimezone().strftime("%H:%M:%S.%f")[:-3]
        line = (
            f"{paint(_DIM, time)} {paint(_LEVEL_COLOURS[level], f'{level:7}')} "
            f"{event['component']:12} {paint(_BOLD, str(event['event']))}{fields}"
        )
        return f"{line}\n{event['exception']}" if "exception" in event else line

    return render


def _shown(value: object) -> str:
    """A value without control characters; in quotes if it is empty or contains spaces."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text and text.isprintable() and " " not in text else repr(text)
