"""A message on its way between two systems, and the headers that a bridge adds to copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "BRIDGE_ENCODING",
    "BRIDGE_ID",
    "BRIDGE_PLACE",
    "BRIDGE_PREFIX",
    "BRIDGE_SOURCE",
    "BRIDGE_TIME",
    "NULL",
    "Bridged",
    "copy_headers",
    "foreign_headers",
    "header",
]

BRIDGE_PREFIX: Final = "penstock-bridge-"
#: the de-duplication key: two copies of one message have the same
BRIDGE_ID: Final = "penstock-bridge-id"
#: the system that the message was copied from
BRIDGE_SOURCE: Final = "penstock-bridge-source"
#: the subject, queue or topic that the message was copied from
BRIDGE_PLACE: Final = "penstock-bridge-place"
#: when the source stored the message, in ms since 1970
BRIDGE_TIME: Final = "penstock-bridge-time-ms"
#: how the body of a copy represents the value, where the body cannot be the value itself
BRIDGE_ENCODING: Final = "penstock-bridge-encoding"
#: the encoding of a record without a value
NULL: Final = "null"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bridged:
    """A message as its source has delivered it.

    `id` is the de-duplication key. It is unique if the source assigns it (`has_unique_id`); a publisher may
    use an id twice. `origin` and `origin_place` are the system and the subject, queue or topic that an
    earlier bridge has copied the message from.
    """

    body: bytes | None
    system: str
    place: str
    id: str | None = None
    has_unique_id: bool = False
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    time_ms: int | None = None
    origin: str | None = None
    origin_place: str | None = None
    #: needed by the source to acknowledge the message
    handle: Any = None


def header(headers: Iterable[tuple[str, bytes | None]], name: str) -> str | None:
    """The value of the first header of this name, as text."""
    for found, value in headers:
        if found == name and value is not None:
            return value.decode("utf-8", "replace")
    return None


def foreign_headers(headers: Iterable[tuple[str, bytes | None]]) -> tuple[tuple[str, bytes], ...]:
    """The headers that no bridge has added. Headers without a value are empty in other systems."""
    return tuple((name, value or b"") for name, value in headers if not name.startswith(BRIDGE_PREFIX))


def copy_headers(message: Bridged) -> list[tuple[str, bytes]]:
    """The headers of a copy: those of the message, then those of the bridge."""
    own = {
        BRIDGE_ID: message.id,
        BRIDGE_SOURCE: message.system,
        BRIDGE_PLACE: message.place,
        BRIDGE_TIME: None if message.time_ms is None else str(message.time_ms),
    }
    return [*message.headers, *((name, value.encode()) for name, value in own.items() if value is not None)]
