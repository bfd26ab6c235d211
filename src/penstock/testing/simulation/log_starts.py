"""Where logs start: records go from the far end for a reason, or not at all.

A start rises where a leader does what DeleteRecords asked of it, where a follower adopts its leader's (or is
reset to it, being behind), and where retention lets go of what is old. It falls only with the log: a
replica that is made again, whose disk had not heard of it, or that has to cut all that it has, starts over;
and an empty one takes the whole batch that it starts within.

Like the other invariants it knows no brokers: it is shown views, one replica at a time.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.history import Deleting, DeletionRefused, Event

__all__ = ["LogStarts", "StartView"]


class StartView(NamedTuple):
    """Where one replica's log starts."""

    partition: TopicPartition
    #: the partition as clients call it
    name: TopicPartition
    node_id: int
    start: int
    high_watermark: int
    leads: bool
    leader_epoch: int
    #: whether it was opened or made since it was last seen
    is_new: bool
    #: behind the first batch that it has; its start, where it has none
    first_end: int
    #: whether what it no longer has is older than what its topic keeps
    expired: bool


class LogStarts:
    """What clients have asked to delete, and where logs of replicas start for that."""

    def __init__(self) -> None:
        self._starts: dict[tuple[TopicPartition, int], int] = {}
        #: where leaders start, by their epochs
        self._led: dict[tuple[TopicPartition, int], int] = {}
        #: what lies before was asked for, and not refused
        self._asked: dict[TopicPartition, list[int]] = {}
        #: where leaders have started for that
        self._done: dict[TopicPartition, set[int]] = {}

    def observe(self, event: Event) -> None:
        """Somebody asks for a deletion, or hears that it was refused."""
        match event:
            case Deleting(partition, before):
                self._asked.setdefault(partition, []).append(before)
            case DeletionRefused(partition, before):
                asked = self._asked[partition]
                asked.remove(before)
                if before not in asked and before in self._done.get(partition, ()):
                    raise Violation("refused deletion done", f"{partition} before {before}")

    def check(self, replica: StartView) -> None:
        """Its start, its high watermark or its role has changed, or it is new."""
        key, start = (replica.partition, replica.node_id), replica.start
        known = self._starts.get(key, 0)
        self._starts[key] = start
        if start > replica.high_watermark:
            raise Violation("log start above the high watermark", f"{replica}")
        if start > known and not replica.expired:
            self._may_rise(known, replica)
        if not replica.is_new and start < replica.first_end <= known:
            raise Violation("log start fell", f"from {known}: {replica}")
        if replica.leads:
            self._led[replica.partition, replica.leader_epoch] = start

    def _may_rise(self, known: int, replica: StartView) -> None:
        if replica.leads:
            asked = self._asked.get(replica.name, [])
            if replica.start not in asked:
                raise Violation("log start moved", f"from {known}, and {asked} were asked for: {replica}")
            self._done.setdefault(replica.name, set()).add(replica.start)
        else:
            led = self._led.get((replica.partition, replica.leader_epoch), 0)
            if replica.start > led:
                raise Violation("log start moved", f"from {known}, and its leader starts at {led}: {replica}")
