"""Decisions of a shard that are not appended yet: records, replies and effects, in their order.

The output of a turn is a unit: its records are appended together, and its replies and effects wait for them.
Many units are appended in several parts, with other requests in between. The records of one turn are divided
only if the shard allows it (`Outbox.is_divisible`). Its replies and effects then wait for the last part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.broker.coordinators.replies import PendingReply
from penstock.coordination.outbox import Effect, EndMarker, LogRecord, Outbox, Reply, TransactionalRecords

__all__ = ["RECORDS_AT_ONCE", "Decisions", "UnappendedRecords"]

#: the most records that are encoded and appended in one turn of the event loop; each takes 4 µs
RECORDS_AT_ONCE: Final = 1000


class UnappendedRecords(list[LogRecord]):
    """Records that a shard has decided on, in their order, before they are appended together."""

    __slots__ = ("_by_producer", "_indexed")

    def __init__(self) -> None:
        super().__init__()
        self._by_producer: dict[int, list[TransactionalRecords | EndMarker]] = {}
        #: the number of records that `_by_producer` covers: most turns have no transactions and need none
        self._indexed = 0

    def of_producer(self, producer_id: int) -> Sequence[TransactionalRecords | EndMarker]:
        """The records and markers of a producer's transactions."""
        while self._indexed < len(self):
            record = self[self._indexed]
            self._indexed += 1
            if isinstance(record, TransactionalRecords | EndMarker):
                self._by_producer.setdefault(record.producer_id, []).append(record)
        return self._by_producer.get(producer_id, ())


class _Unit(NamedTuple):
    """Records that are appended together, by their number, and what waits for them."""

    records: int
    replies: Sequence[tuple[PendingReply, Reply]]
    effects: Sequence[Effect]


class Decisions:
    """The output of turns since the last append. Owned by the event loop's thread."""

    __slots__ = ("records", "units")

    def __init__(self) -> None:
        self.records = UnappendedRecords()
        #: Invariant: they have all records
        self.units: deque[_Unit] = deque()

    def add(self, outbox: Outbox) -> Sequence[tuple[PendingReply, Reply]]:
        """Add the output of a turn. Returns its replies."""
        number = len(outbox.records)
        replies: list[tuple[PendingReply, Reply]] = []
        for pending, reply in outbox.replies:
            assert isinstance(pending, PendingReply)
            replies.append((pending, reply))
        if outbox.is_divisible:
            while number > RECORDS_AT_ONCE:
                self.units.append(_Unit(RECORDS_AT_ONCE, (), ()))
                number -= RECORDS_AT_ONCE
        self.records += outbox.records
        self.units.append(_Unit(number, replies, list(outbox.effects)))
        return replies

    def take(self) -> tuple[UnappendedRecords, list[tuple[PendingReply, Reply]], list[Effect]]:
        """Remove and return what is appended next: at least one unit, and few records if possible."""
        number = 0
        replies: list[tuple[PendingReply, Reply]] = []
        effects: list[Effect] = []
        while self.units and (not number or number + self.units[0].records <= RECORDS_AT_ONCE):
            unit = self.units.popleft()
            number += unit.records
            replies += unit.replies
            effects += unit.effects
        records, rest = self.records, UnappendedRecords()
        if number < len(records):
            rest.extend(records[number:])
            del records[number:]
        self.records = rest
        return records, replies, effects

    def pending(self) -> list[PendingReply]:
        """The requests that wait for their records to be appended."""
        return [pending for unit in self.units for pending, _ in unit.replies]
