"""Checks the guarantees of share groups: deliveries as partition leaders make them, acknowledgements as
members see them.

A delivery is compared with acknowledgements that were answered before it. A leader that was replaced, and
does not know it yet, may deliver finished records: it cannot persist anything any more. So its deliveries
are not compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from penstock.model.ids import TopicPartition
from penstock.shares.states import AcknowledgeType
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.history import Event
from penstock.testing.simulation.share_events import (
    ShareAcknowledged,
    ShareAcknowledging,
    ShareRefused,
)

__all__ = ["Delivery", "ShareChecker"]

#: acknowledgements after which a record is not delivered again
_FINAL: Final = frozenset({AcknowledgeType.ACCEPT, AcknowledgeType.REJECT})


class Delivery(NamedTuple):
    """One record as a member has it on one leader."""

    member: str
    number: int


class ShareChecker:
    """The records of one share group."""

    def __init__(self, delivery_limit: int) -> None:
        self._limit = delivery_limit
        #: the highest leader epoch in which a leader has had share partitions
        self._epochs: dict[TopicPartition, int] = defaultdict(lambda: -1)
        #: by member, the acknowledgements after which an offset is not delivered again, without refused ones
        self._finishing: dict[TopicPartition, dict[int, Counter[str]]] = defaultdict(
            lambda: defaultdict(Counter)
        )
        #: offsets for which one was answered
        self.finished: dict[TopicPartition, set[int]] = defaultdict(set)
        #: the delivery count of answered releases
        self._released: dict[TopicPartition, dict[int, int]] = defaultdict(dict)
        self._deliveries: dict[TopicPartition, Counter[int]] = defaultdict(Counter)
        #: the last delivery of each offset by a leader that was not replaced
        self._last: dict[TopicPartition, dict[int, Delivery]] = defaultdict(dict)

    def observe(self, client: str, event: Event) -> None:
        match event:
            case ShareAcknowledging(partition, acks, member_id):
                for ack in acks:
                    if ack.kind in _FINAL:
                        for offset in range(ack.first, ack.last + 1):
                            self._finishing[partition][offset][member_id] += 1
            case ShareRefused(partition, acks, member_id):
                for ack in acks:
                    if ack.kind in _FINAL:
                        for offset in range(ack.first, ack.last + 1):
                            self._finishing[partition][offset][member_id] -= 1
            case ShareAcknowledged(partition, acks, member_id):
                for ack in acks:
                    offsets = range(ack.first, ack.last + 1)
                    if ack.kind in _FINAL:
                        self._check_owner(partition, offsets, member_id)
                        self.finished[partition].update(offsets)
                    elif ack.kind is AcknowledgeType.RELEASE:
                        released = self._released[partition]
                        for offset in offsets:
                            released[offset] = max(ack.delivery_count, released.get(offset, 0))
            case _:
                pass

    def _check_owner(self, partition: TopicPartition, offsets: range, member_id: str) -> None:
        """An acknowledgement must fail while another member has the record.

        It succeeds without an effect if the record is finished, because the owner has acknowledged it or its
        deliveries have ended.
        """
        for offset in offsets:
            last = self._last[partition].get(offset)
            if last is None or last.member == member_id or last.number >= self._limit:
                continue
            if not self._finishing[partition][offset][last.member]:
                raise Violation(
                    "acknowledged without the lock",
                    f"{partition} offset {offset} by {member_id}, delivered last: {last}",
                )

    def has_led(self, partition: TopicPartition, leader_epoch: int) -> None:
        """A leader has share partitions in this epoch."""
        self._epochs[partition] = max(leader_epoch, self._epochs[partition])

    def delivered(
        self,
        partition: TopicPartition,
        leader_epoch: int,
        offset: int,
        now: Delivery,
        before: Delivery | None,
        last_count: int | None,
    ) -> None:
        """A leader has locked a record for a member.

        `before` is the lock that the record had a moment ago, `last_count` the count of the last delivery by
        the same leader.
        """
        where = f"{partition} offset {offset} in epoch {leader_epoch}: {now}"
        if before is not None:
            raise Violation("record acquired twice", f"{where}, while it was {before}")
        if now.number > self._limit:
            raise Violation("record delivered too often", where)
        if last_count is not None and now.number != last_count + 1:
            raise Violation("wrong delivery count", f"{where} after {last_count}")
        self._deliveries[partition][offset] += 1
        if leader_epoch < self._epochs[partition]:
            return
        if offset in self.finished[partition]:
            raise Violation("finished record delivered", where)
        released = self._released[partition].get(offset, 0)
        # The lock of the last delivery may have expired before its release: the leader has archived the
        # record and ignores the release. The next leader may not know it, and delivers the record a last time
        # again.
        if now.number <= released and not now.number == released == self._limit:
            raise Violation("delivery count fell", f"{where}, released after {released} deliveries")
        self._last[partition][offset] = now

    def finish(self, logs: Mapping[TopicPartition, Sequence[tuple[int, bytes]]]) -> None:
        """Check that no record of `logs` was skipped, when the group has finished all records."""
        for partition, records in logs.items():
            for offset, value in records:
                if any(self._finishing[partition][offset].values()):
                    continue
                deliveries = self._deliveries[partition][offset]
                if deliveries < self._limit:
                    raise Violation(
                        "record skipped",
                        f"{partition} offset {offset} {value!r}: {deliveries} deliveries, not acknowledged",
                    )
