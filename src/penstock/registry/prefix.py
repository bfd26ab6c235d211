"""The prefix of messages that have a schema: a zero byte and the number of the schema."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["PREFIX_SIZE", "prefix_of", "schema_id"]

_PREFIX: Final = struct.Struct(">bI")
PREFIX_SIZE: Final = _PREFIX.size


def prefix_of(number: int) -> bytes:
    return _PREFIX.pack(0, number)


def schema_id(data: bytes) -> int | None:
    """The number of the schema that serializers of Confluent write in front; None without their prefix."""
    if len(data) <= PREFIX_SIZE or data[0] != 0:
        return None
    return int(_PREFIX.unpack_from(data)[1])
