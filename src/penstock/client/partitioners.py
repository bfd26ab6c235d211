"""Which partition a message without one goes to.

The default, `"key_hash"`, is librdkafka's: murmur2 as Java clients use it, so that one key is in one
partition whoever sends it; messages without a key stick to a random partition for a batch. Any function of
the key's bytes and the number of partitions will do instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeAlias

from penstock.client.errors import MisusedClient

__all__ = ["Partitioner", "range_partitioner", "round_robin"]

Partitioner: TypeAlias = Callable[[bytes | None, int], int]


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
        raise MisusedClient("the bounds of ranges must rise: sort them and leave out duplicates")

    def partition(key: bytes | None, partitions: int) -> int:
        if len(edges) >= partitions:
            raise MisusedClient(
                f"{len(edges) + 1} ranges do not fit {partitions} partitions: add partitions or remove bounds"
            )
        return 0 if key is None else bisect_right(edges, key)

    return partition
