"""Unsigned varints, as the flexible encodings use them for lengths, counts and tags."""

from __future__ import annotations

from penstock.model.errors import ProtocolError
from penstock.ports import Buffer

__all__ = ["encode_uvarint", "read_uvarint", "skip_tags"]

_INT32_MAX = 0x7FFFFFFF


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The varint at `position` and the position after it; IndexError where the buffer ends within it."""
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise ProtocolError("varint longer than five bytes")
    if value > _INT32_MAX:
        raise ProtocolError(f"varint {value} does not fit 31 bits")
    return value, position


def encode_uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def skip_tags(buffer: Buffer, position: int) -> int:
    """The position after the tagged fields whose count is at `position`; nothing of them is looked at."""
    count, position = read_uvarint(buffer, position)
    size = len(buffer)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        position += length
        if position > size:
            raise ProtocolError("tagged field reaches past the end")
    return position
