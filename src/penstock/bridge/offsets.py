"""Offsets of a topic whose records are finished in any order, and committed without gaps."""

from __future__ import annotations

from penstock.model.ids import TopicPartition

__all__ = ["OffsetTracker"]


class OffsetTracker:
    """The committable offset of each partition: behind it all delivered records are finished."""

    def __init__(self) -> None:
        self._unfinished: dict[TopicPartition, dict[int, None]] = {}
        #: the offset after the last delivered record
        self._ends: dict[TopicPartition, int] = {}

    def deliver(self, partition: TopicPartition, offset: int) -> None:
        self._unfinished.setdefault(partition, {})[offset] = None
        self._ends[partition] = offset + 1

    def finish(self, partition: TopicPartition, offset: int) -> None:
        self._unfinished.get(partition, {}).pop(offset, None)

    def committable(self, partition: TopicPartition) -> int:
        """The first unfinished offset, or the end of what was delivered."""
        return next(iter(self._unfinished[partition]), self._ends[partition])
