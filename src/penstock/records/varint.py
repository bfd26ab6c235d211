"""Zigzag varints: small numbers of either sign in few bytes, seven bits per byte, the lowest first."""

from __future__ import annotations

from typing import Final

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer

__all__ = ["INT_BYTES_MAX", "LONG_BYTES_MAX", "decode_varint", "encode_varint"]

#: A 32-bit number takes five bytes at most, a 64-bit number ten.
INT_BYTES_MAX: Final = 5
LONG_BYTES_MAX: Final = 10
_ONE_BYTE: Final = tuple(bytes((value,)) for value in range(0x80))


def encode_varint(value: int) -> bytes:
    """`value`, which must fit in 64 bits with its sign."""
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    if zigzag < 0x4000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    encoded = bytearray()
    while zigzag >= 0x80:
        encoded.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    encoded.append(zigzag)
    return bytes(encoded)


def decode_varint(data: Buffer, position: int, bytes_max: int = INT_BYTES_MAX) -> tuple[int, int]:
    """(value, position behind it). IndexError where `data` ends first, CorruptMessage beyond `bytes_max`."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    zigzag = byte & 0x7F
    shift = 7
    while True:
        byte = data[position]
        position += 1
        zigzag |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (zigzag >> 1) ^ -(zigzag & 1), position
        shift += 7
        if shift >= 7 * bytes_max:
            raise CorruptMessage(f"a varint of more than {bytes_max} bytes")
