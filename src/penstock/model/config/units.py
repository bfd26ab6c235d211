"""Sizes and durations as people write them: `1GB`, `500 KB`, `24h`, `1h30m`, `7d`.

Sizes go by 1,024, as Kafka's own defaults do: `1GB` is the size of its segments.
"""

from __future__ import annotations

import re
from enum import Enum

from penstock.model.errors import InvalidConfig
from penstock.model.sizes import batch_bytes

__all__ = ["Unit", "in_bytes", "in_milliseconds", "plain"]

_SIZE = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?:(?P<prefix>[KMGTP])i?)?B?", re.IGNORECASE)
_PREFIXES = " KMGTP"
_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?\s*(?:ms|[smhdw])\s*)+")
_DURATION_PART = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>ms|[smhdw])")
_MILLISECONDS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 7 * 86_400_000,
}
#: what Kafka's configs write for "no limit"
_UNLIMITED = "-1"


class Unit(Enum):
    """The unit of a setting."""

    NONE = "text"
    SIZE = "size"
    DURATION = "duration"
    #: the size of a message, where the config limits the batch around it
    MESSAGE_SIZE = "message size"


def in_bytes(text: str) -> int:
    """`1GB` and the like, or a number of bytes; -1 stays what it is. Raises InvalidConfig."""
    if text == _UNLIMITED:
        return -1
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidConfig(f"{text!r} is not a size: write one like 512KB, 1GB or 1048576")
    factor = 1024 ** _PREFIXES.index((match["prefix"] or " ").upper())
    number = match["number"]
    return int(float(number) * factor) if "." in number else int(number) * factor


def in_milliseconds(text: str) -> int:
    """`24h` and the like; -1 and 0 need no unit. Raises InvalidConfig."""
    if text in (_UNLIMITED, "0"):
        return int(text)
    if _DURATION.fullmatch(text.strip()) is None:
        raise InvalidConfig(f"{text!r} is not a duration: write one like 500ms, 30s, 24h or 7d")
    return int(
        sum(float(part["number"]) * _MILLISECONDS[part["unit"]] for part in _DURATION_PART.finditer(text))
    )


def plain(text: str, unit: Unit) -> str:
    """A value as Kafka's configs want it: bytes or milliseconds as a number, text as it is."""
    if unit is Unit.SIZE:
        return str(in_bytes(text))
    if unit is Unit.MESSAGE_SIZE:
        return str(batch_bytes(in_bytes(text)))
    if unit is Unit.DURATION:
        return str(in_milliseconds(text))
    return text
