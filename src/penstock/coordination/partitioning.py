"""The partition of an internal topic that holds a key: Kafka's hash of a group id or transactional id."""

from __future__ import annotations

from functools import lru_cache

__all__ = ["java_hash", "partition_of"]


@lru_cache(maxsize=4096)
def java_hash(text: str) -> int:
    """Java's `String.hashCode`, made non-negative as Kafka's `Utils.abs` does."""
    value = 0
    units = text.encode("utf-16-be")
    for i in range(0, len(units), 2):
        value = (31 * value + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    if value == 0x80000000:
        return 0
    return 0x100000000 - value if value & 0x80000000 else value


def partition_of(key: str, partitions: int) -> int:
    """The index of the partition, of a topic with that many, that holds `key`."""
    return java_hash(key) % partitions
