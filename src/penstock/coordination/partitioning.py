"""The partition of an internal topic that holds a key: Kafka's hash of a group id or transactional id."""

from __future__ import annotations

from functools import lru_cache
from operator import mul
from typing import Final

__all__ = ["java_hash", "partition_of"]


#: 31 to the power of each index, in 32 bits
_POWERS: Final = [pow(31, index, 1 << 32) for index in range(256)]


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Java's `String.hashCode`, made non-negative as Kafka's `Utils.abs` does.

    Why sums of products: a client chooses the text, and a loop takes four times as long.
    """
    units = memoryview(text.encode("utf-16-le")).cast("H").tolist()
    value = 0
    for start in range(0, len(units), len(_POWERS)):
        some = units[start : start + len(_POWERS)]
        value = value * pow(31, len(some), 1 << 32) + sum(map(mul, reversed(some), _POWERS))
        value &= 0xFFFFFFFF
    if value == 0x80000000:
        return 0
    return 0x100000000 - value if value & 0x80000000 else value


def partition_of(key: str, partitions: int) -> int:
    """The index of the partition, of a topic with that many, that holds `key`."""
    return java_hash(key) % partitions
