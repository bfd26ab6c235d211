"""Offsets of open transactions: they are pending until the transaction's marker is replayed.

A producer's pending offsets are materialised by COMMIT and dropped by ABORT. A tombstone removes the pending
offsets of its partition as well. `require_stable` and the expiry of groups look for pending offsets.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

__all__ = ["Committed", "OffsetKey", "PendingOffsets"]

#: (group, topic, partition)
OffsetKey: TypeAlias = tuple[str, str, int]


class Committed(NamedTuple):
    """The committed offset of one group in one partition."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    #: the end of the retention that the client requested (versions 2 to 4)
    expire_ms: int | None
    topic_id: bytes
    #: The position of the record in the log, to compare it with that of another commit. A record that was
    #: written since the load has a position behind all that were replayed, in the order of the log.
    position: int


class PendingOffsets:
    """Pending offsets by producer id, and the producers of each partition of a group."""

    __slots__ = ("_by_group", "_by_producer")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, Committed]] = {}
        #: Invariant: has exactly the keys of `_by_producer`
        self._by_group: dict[str, dict[tuple[str, int], set[int]]] = {}

    def add(self, producer_id: int, key: OffsetKey, committed: Committed) -> None:
        self._by_producer.setdefault(producer_id, {})[key] = committed
        group, topic, partition = key
        self._by_group.setdefault(group, {}).setdefault((topic, partition), set()).add(producer_id)

    def end(self, producer_id: int) -> dict[OffsetKey, Committed]:
        """Remove and return the offsets of a producer whose transaction has ended."""
        ended = self._by_producer.pop(producer_id, {})
        for key in ended:
            self._forget(producer_id, key)
        return ended

    def remove(self, key: OffsetKey) -> None:
        """A tombstone: no transaction commits an offset of the partition any more."""
        group, topic, partition = key
        for producer_id in list(self._by_group.get(group, {}).get((topic, partition), ())):
            del self._by_producer[producer_id][key]
            if not self._by_producer[producer_id]:
                del self._by_producer[producer_id]
            self._forget(producer_id, key)

    def _forget(self, producer_id: int, key: OffsetKey) -> None:
        group, topic, partition = key
        partitions = self._by_group[group]
        producers = partitions[topic, partition]
        producers.discard(producer_id)
        if not producers:
            del partitions[topic, partition]
        if not partitions:
            del self._by_group[group]

    def has_group(self, group: str) -> bool:
        return group in self._by_group

    def has(self, group: str, topic: str, partition: int) -> bool:
        return (topic, partition) in self._by_group.get(group, ())

    def of_group(self, group: str) -> list[tuple[str, int]]:
        return list(self._by_group.get(group, ()))

    def items(self) -> Iterator[tuple[OffsetKey, Committed]]:
        for offsets in list(self._by_producer.values()):
            yield from list(offsets.items())
