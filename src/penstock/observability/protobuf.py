"""The wire format of Protocol Buffers, as far as OpenTelemetry's messages need it.

Why not the library: the broker writes two messages and reads one, and `protobuf` costs every broker that
exports anything its import and a code generator. Tests compare with the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error
from typing import Final, NamedTuple

__all__ = [
    "Budget",
    "Field",
    "InvalidProtobuf",
    "TooManyFields",
    "fields",
    "fixed64",
    "message",
    "text",
    "varint",
]

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED: Final = Struct("<Q")
_VARINT_BITS: Final = 64


class InvalidProtobuf(Exception):
    """Bytes that are no message."""


class TooManyFields(InvalidProtobuf):
    """A message with more fields than its reader accepts."""


class Budget:
    """The number of fields that may still be read, of a message and of all messages inside it."""

    __slots__ = ("left",)

    def __init__(self, fields_max: int) -> None:
        self.left = fields_max

    def take(self) -> None:
        """Count a field; raises TooManyFields if it is one too many."""
        self.left -= 1
        if self.left < 0:
            raise TooManyFields("a message has too many fields")


class Field(NamedTuple):
    """A field of a message: an integer, the bits of a fixed number, or bytes."""

    number: int
    integer: int
    data: bytes


def _varint(value: int) -> bytes:
    value &= (1 << _VARINT_BITS) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint(number: int, value: int) -> bytes:
    """An integer field; negative ones as Protocol Buffers' int64."""
    return _varint(number << 3 | _VARINT) + _varint(value)


def fixed64(number: int, value: int) -> bytes:
    return _varint(number << 3 | _FIXED64) + _FIXED.pack(value)


def message(number: int, data: bytes) -> bytes:
    """A field of bytes, or of an embedded message."""
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def text(number: int, value: str) -> bytes:
    return message(number, value.encode("utf-8", "replace"))


def fields(data: bytes, budget: Budget | None = None) -> Iterator[Field]:
    """The fields of a message, in order. Raises InvalidProtobuf at bytes that are none.

    With a budget, raises TooManyFields when it is used up.
    """
    position = 0
    while position < len(data):
        if budget is not None:
            budget.take()
        key, position = _read_varint(data, position)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, position = _read_varint(data, position)
            yield Field(number, value, b"")
        elif kind == _FIXED64:
            try:
                (value,) = _FIXED.unpack_from(data, position)
            except error as e:
                raise InvalidProtobuf("a number is cut off") from e
            position += 8
            yield Field(number, value, b"")
        elif kind in (_BYTES, _FIXED32):
            size, position = _read_varint(data, position) if kind == _BYTES else (4, position)
            if size > len(data) - position:
                raise InvalidProtobuf("a field is longer than its message")
            yield Field(number, 0, data[position : position + size])
            position += size
        else:
            raise InvalidProtobuf(f"wire type {kind}")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift >= _VARINT_BITS:
            raise InvalidProtobuf("an integer is cut off or too long")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
