"""Checks log start offsets: records are deleted from the start of a log only for a reason.

A log start rises when a leader executes DeleteRecords, when a follower adopts the leader's log start (or is
reset to it, because it is behind), and when retention removes old segments. A share coordinator removes the
records of `__share_group_state` that snapshots replace, and the leader of a delay topic those that it has
moved. It falls only if the log starts over: the replica is created again, the new start was not on its disk
at a crash, or the replica truncates its whole log. An empty replica whose start lies within a batch takes the
whole batch. A log start that nothing explains (its record was lost in a crash) is no deletion, and followers
do not adopt it.

Like the other invariants, it does not depend on brokers: it gets views, one replica at a time.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.model.ids import SHARE_STATE_TOPIC, TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.history import Deleting, DeletionRefused, Event

__all__ = ["DELAY_TOPIC", "LogStarts", "StartView"]

DELAY_TOPIC: Final = "later"
_TRIMMED_BY_BROKERS: Final = frozenset({SHARE_STATE_TOPIC, DELAY_TOPIC})


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
    #: the end offset of the first batch; the log start offset of an empty log
    first_end: int
    #: true if retention expires the records that are gone
    expired: bool
    #: false if the record of the log start was lost
    explained: bool = True


class LogStarts:
    """The deletions that clients requested, and the log starts of replicas that follow from them."""

    def __init__(self) -> None:
        self._starts: dict[tuple[TopicPartition, int], int] = {}
        #: where leaders start, by their epochs
        self._led: dict[tuple[TopicPartition, int], int] = {}
        #: the replicas that led when they were last seen: one may delete records and lose its role at once
        self._leaders: set[tuple[TopicPartition, int]] = set()
        #: the end of the requested deletions that were not refused
        self._requested: dict[TopicPartition, list[int]] = {}
        #: where leaders have started for that
        self._done: dict[TopicPartition, set[int]] = {}

    def observe(self, event: Event) -> None:
        """A client requests a deletion, or gets its refusal."""
        match event:
            case Deleting(partition, before):
                self._requested.setdefault(partition, []).append(before)
            case DeletionRefused(partition, before):
                requested = self._requested[partition]
                requested.remove(before)
                if before not in requested and before in self._done.get(partition, ()):
                    raise Violation("refused deletion done", f"{partition} before {before}")

    def check(self, replica: StartView) -> None:
        """Its start, its high watermark or its role has changed, or it is new."""
        key, start = (replica.partition, replica.node_id), replica.start
        known = self._starts.get(key, 0)
        self._starts[key] = start if replica.explained else min(start, known)
        if start > replica.high_watermark:
            raise Violation("log start above the high watermark", f"{replica}")
        if not replica.explained:
            return
        if start > known and not replica.expired:
            self._may_rise(known, replica, has_led=key in self._leaders)
        if not replica.is_new and start < replica.first_end <= known:
            raise Violation("log start fell", f"from {known}: {replica}")
        if replica.leads:
            self._led[replica.partition, replica.leader_epoch] = start
            self._leaders.add(key)
        else:
            self._leaders.discard(key)

    def _may_rise(self, known: int, replica: StartView, *, has_led: bool) -> None:
        if replica.leads or has_led:
            if replica.name.topic in _TRIMMED_BY_BROKERS:
                return
            requested = self._requested.get(replica.name, [])
            if replica.start in requested:
                self._done.setdefault(replica.name, set()).add(replica.start)
                return
        if replica.leads:
            raise Violation("log start moved", f"from {known}, and {requested} were requested: {replica}")
        led = self._led.get((replica.partition, replica.leader_epoch), 0)
        if replica.start > led:
            raise Violation("log start moved", f"from {known}, and its leader starts at {led}: {replica}")
