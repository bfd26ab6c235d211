"""Changes of share groups with many partitions, a few slices per turn.

The share partitions of a group are one record, and the assignment of a member is another. To decide on one of
100,000 partitions of 5,000 topics, to encode and to apply it took 35 to 70 ms. It is done between heartbeats.

Invariant: a change is written only if what it was computed from is still the same. If not, a change of share
partitions is computed anew, and an assignment is dropped: the member's next heartbeat begins another.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Final, NamedTuple, TypeAlias

from penstock.coordination.outbox import Effect
from penstock.groups.assignors import Assignment
from penstock.groups.computations import Computations
from penstock.groups.large_assignments import PARTITIONS_AT_ONCE_MAX, TOPICS_AT_ONCE_MAX
from penstock.groups.ledger import GroupLedger
from penstock.groups.records import encode_in_slices
from penstock.groups.share_group import PreparedShares, ShareGroup, ShareMember, SharePartitions
from penstock.groups.share_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
)
from penstock.groups.share_targets import share_partitions

__all__ = ["Change", "LargeShareChanges", "is_large"]

#: the kinds of the timers, per group, for the next turn of a change
SHARE_STATE: Final = "share-state"
SHARE_ASSIGNMENT: Final = "share-assignment"


class Change(NamedTuple):
    """The share partitions of a group after a change, and an effect that follows; None for no effect."""

    partitions: SharePartitions
    effect: Effect | None = None


#: computes a change; None if there is nothing to change
Compute: TypeAlias = Callable[[ShareGroup], Generator[None, None, Change | None]]


def is_large(partitions: Assignment) -> bool:
    """Returns true if a record of these partitions takes too long to be written at once."""
    return len(partitions) > TOPICS_AT_ONCE_MAX or sum(map(len, partitions.values())) > PARTITIONS_AT_ONCE_MAX


class LargeShareChanges:
    """The changes of one shard's share groups."""

    __slots__ = ("_ledger", "assignments", "computations", "states")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.states: Final = Computations(ledger, SHARE_STATE)
        self.assignments: Final = Computations(ledger, SHARE_ASSIGNMENT)
        #: by the kind of their timers
        self.computations: Final = {SHARE_STATE: self.states, SHARE_ASSIGNMENT: self.assignments}

    def is_changing(self, group: ShareGroup) -> bool:
        return self.states.is_running(group)

    def is_preparing(self, group: ShareGroup, member: ShareMember) -> bool:
        """Returns true if the member's next heartbeat may get an assignment."""
        return member.prepared is not None or self.assignments.is_running(group)

    # -- share partitions

    def change(self, group: ShareGroup, compute: Compute) -> None:
        """Change the share partitions of a group, after the changes that are in progress."""
        group.changes.append(compute)
        if not self.states.is_running(group):
            self.states.begin(group, self._change(group))

    def _change(self, group: ShareGroup) -> Iterator[None]:
        while group.changes:
            before = group.share_partitions
            change = yield from group.changes[0](group)
            if change is not None:
                names = group.names_of(change.partitions, self._ledger.env.image)
                value = yield from change.partitions.record(names)
                record = yield from encode_in_slices(group.state_key(), value)
                if group.share_partitions is not before:
                    continue
                self._ledger.log_encoded(record)
                group.share_partitions, group.topic_names = change.partitions, names
                if change.effect is not None:
                    self._ledger.after_commit(change.effect)
            group.changes.popleft()

    # -- assignments

    def write_assignment(self, group: ShareGroup, member: ShareMember) -> bool:
        """Write the prepared assignment of a member. Returns false if it has none, or an outdated one."""
        prepared, member.prepared = member.prepared, None
        if prepared is None or not prepared.fits(group, member):
            return False
        self._ledger.log_encoded(prepared.record)
        member.previous_epoch, member.epoch = member.epoch, prepared.assignment_epoch
        member.assigned = prepared.assigned
        return True

    def prepare_assignment(self, group: ShareGroup, member: ShareMember, assigned: Assignment) -> None:
        """Prepare the member's next assignment, unless that of a member of the group is being prepared."""
        if not self.assignments.is_running(group):
            self.assignments.begin(group, self._prepare(group, member, assigned))

    def _prepare(self, group: ShareGroup, member: ShareMember, assigned: Assignment) -> Iterator[None]:
        epoch, member_epoch, topics = group.assignment_epoch, member.epoch, member.topics
        target, before = group.target[member.id], member.assigned
        value = ShareGroupCurrentMemberAssignmentValue(
            member_epoch=epoch,
            previous_member_epoch=member_epoch,
            assigned_partitions=(yield from share_partitions(assigned)),
        )
        key = ShareGroupCurrentMemberAssignmentKey(group_id=group.id, member_id=member.id)
        record = yield from encode_in_slices(key, value)
        member.prepared = PreparedShares(record, assigned, epoch, target, before, topics, member_epoch)
