"""Unsigned varints, as the flexible encodings use them for lengths, counts and tags."""

from __future__ import annotations

from penstock.model.errors import ProtocolError
from penstock.ports import Buffer
from penstock.wire.slicing import TAGS_MAX

__all__ = ["SHORT_UVARINTS", "encode_uvarint", "read_uvarint", "skip_tags"]

#: The varints of one byte, ready made.
SHORT_UVARINTS = tuple(bytes((value,)) for value in range(128))
_INT32_MAX = 0x7FFFFFFF


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The varint at `position` and the position after it; IndexError where the buffer ends within it."""
    value = buffer[position]
    if value < 0x80:
        return value, position + 1
    # Two bytes written out: the lengths of most record batches.
    byte = buffer[position + 1]
    value = value & 0x7F | (byte & 0x7F) << 7
    if byte < 0x80:
        return value, position + 2
    position += 2
    for shift in (14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _INT32_MAX:
                raise ProtocolError(f"varint {value} does not fit 31 bits")
            return value, position
    raise ProtocolError("varint longer than five bytes")


def encode_uvarint(value: int) -> bytes:
    if value < 1 << 7:
        return SHORT_UVARINTS[value]
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    return bytes((value & 0x7F | 0x80,)) + encode_uvarint(value >> 7)


def skip_tags(buffer: Buffer, position: int) -> int:
    """The position after the tagged fields whose count is at `position`; nothing of them is looked at."""
    count, position = read_uvarint(buffer, position)
    if count > TAGS_MAX:
        raise ProtocolError(f"{count} tagged fields in one structure")
    size = len(buffer)
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        position += length
        if position > size:
            raise ProtocolError("tagged field reaches past the end")
    return position
