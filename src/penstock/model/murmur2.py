"""The hash of keys by which Java clients choose partitions."""

from __future__ import annotations

import struct
from typing import Final

__all__ = ["murmur2"]

_MASK: Final = 0xFFFFFFFF
_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def murmur2(key: bytes) -> int:
    """The hash of Java's clients, without its sign as they use it for partitions."""
    whole = len(key) & ~3
    hashed = _SEED ^ len(key)
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ mixed
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF
