"""The offsets of delivered and of processed messages, for the commits of one consumer."""

from __future__ import annotations

from penstock.client.fetching import Offsets
from penstock.client.lanes import Lanes
from penstock.model.ids import TopicPartition

__all__ = ["Positions"]


class Positions:
    """Of each partition the next offset: of the messages delivered last, and of all processed messages."""

    def __init__(self) -> None:
        self.handed: dict[TopicPartition, int] = {}
        self._processed: dict[TopicPartition, int] = {}
        #: the messages that a parallel run handles
        self.lanes: Lanes | None = None
        self._store_due = False

    def settle(self) -> None:
        """Delivered messages count as processed."""
        if self.handed:
            self._processed.update(self.handed)
            self.handed.clear()
            self._store_due = True

    def all(self) -> Offsets:
        return self._processed | self.handed

    def take_due(self) -> Offsets | None:
        """The offsets of processed messages, if there are any since the last call."""
        self._collect()
        if self.lanes is not None:
            self._store_due = bool(self._processed)
        due, self._store_due = self._store_due, False
        return self._processed if due else None

    async def finish(self, partitions: set[TopicPartition]) -> Offsets:
        """Wait for the messages of these partitions that are being handled; their processed offsets."""
        if self.lanes is not None:
            await self.lanes.drain(partitions)
        self._collect()
        return {tp: offset for tp, offset in self._processed.items() if tp in partitions}

    def forget(self, partitions: set[TopicPartition]) -> None:
        for partition in partitions:
            self._processed.pop(partition, None)
            self.handed.pop(partition, None)
        if self.lanes is not None:
            self.lanes.forget(partitions)

    def end_lanes(self) -> Lanes | None:
        """End a parallel run: its positions are kept. Returns its lanes."""
        lanes = self.lanes
        if lanes is not None:
            lanes.abandon()
            self._collect()
            self.lanes = None
        return lanes

    def _collect(self) -> None:
        if self.lanes is not None:
            self._processed.update(self.lanes.positions())
