"""Chooses the partition of a message.

`"key_hash"`, the default, is murmur2 as Java clients use it, and `"crc32"` is the CRC-32 of the key: with
either, one key is in one partition for all clients. Messages without a key stay with a random
partition for a batch, or take turns (`keyless="round_robin"`). Any function of the key's bytes and the number
of partitions will do instead.
"""

from __future__ import annotations

import random
import time
import zlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import count
from typing import Final, Literal, TypeAlias

from penstock.client.errors import MisusedClient
from penstock.model.murmur2 import murmur2

__all__ = [
    "LIBRDKAFKA_NAMES",
    "KeyHash",
    "Keyless",
    "Partitioner",
    "hash_partitioner",
    "murmur2",
    "range_partitioner",
    "round_robin",
]

Partitioner: TypeAlias = Callable[[bytes | None, int], int]
KeyHash: TypeAlias = Literal["key_hash", "crc32"]
Keyless: TypeAlias = Literal["sticky", "round_robin"]

#: the partitioners of librdkafka that hash a key in the same way
LIBRDKAFKA_NAMES: Final[dict[KeyHash, str]] = {"key_hash": "murmur2_random", "crc32": "consistent_random"}
#: how long messages without a key stay with one partition, as librdkafka's sticky.partitioning.linger.ms
_STICKY_S: Final = 0.01


def round_robin() -> Partitioner:
    """Each message to the next partition, whatever its key."""
    turns = count()
    return lambda key, partitions: next(turns) % partitions


def range_partitioner(bounds: Sequence[bytes | str]) -> Partitioner:
    """Keys in order: those below the first bound to partition 0, those below the second to 1, and so on.

    `n` bounds make `n + 1` ranges; a message without a key is in the first.
    """
    edges = [bound.encode() if isinstance(bound, str) else bound for bound in bounds]
    if edges != sorted(set(edges)):
        raise MisusedClient("the bounds of ranges must increase: sort them and remove duplicates")

    def partition(key: bytes | None, partitions: int) -> int:
        if len(edges) >= partitions:
            raise MisusedClient(
                f"{len(edges) + 1} ranges do not fit {partitions} partitions: add partitions or remove bounds"
            )
        return 0 if key is None else bisect_right(edges, key)

    return partition


def hash_partitioner(key_hash: KeyHash, keyless: Keyless) -> Partitioner:
    """The partition of a key by its hash; messages without a key as `keyless` says."""
    hashed = zlib.crc32 if key_hash == "crc32" else murmur2
    next_partition = round_robin() if keyless == "round_robin" else _sticky()

    def partition(key: bytes | None, partitions: int) -> int:
        return next_partition(None, partitions) if key is None else (hashed(key) % partitions)

    return partition


def _sticky() -> Partitioner:
    chosen, until = 0, 0.0

    def partition(key: bytes | None, partitions: int) -> int:
        nonlocal chosen, until
        now = time.monotonic()
        if now >= until or chosen >= partitions:
            chosen, until = random.randrange(partitions), now + _STICKY_S
        return chosen

    return partition
