"""The next assignments of members with many partitions, prepared a few slices per turn.

The next assignment of a member is one record. One of 100,000 partitions of 5,000 topics took 45 ms of a
heartbeat: to decide, to encode and to apply it. Such an assignment is prepared between two heartbeats: its
record is encoded, and the new state of the member is at hand. The next heartbeat writes it. Until then the
member keeps its assignment, and sends heartbeats as often as a member that waits for partitions.

Invariant: an assignment is written only if the member has the assignment, target and subscription that
it was prepared from. Meanwhile other members may release partitions, but none can take one of this target.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Final

from penstock.groups.assignors import Assignment, Due
from penstock.groups.computations import Computations
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import (
    ConsumerMember,
    Partitions,
    PreparedAssignment,
    from_record,
)
from penstock.groups.ledger import GroupLedger
from penstock.groups.reconciliation import towards_target
from penstock.groups.records import encode_in_slices

__all__ = ["ASSIGNMENT", "LargeAssignments", "has_many_partitions"]

#: the kind of the timer, per group, for the next turn of a preparation
ASSIGNMENT: Final = "consumer-assignment"
#: the most topics, before and after, of an assignment that is decided at once; each takes 8 µs
TOPICS_AT_ONCE_MAX: Final = 500
#: the most partitions; each takes 0.2 µs
PARTITIONS_AT_ONCE_MAX: Final = 20_000


class LargeAssignments:
    """Prepares assignments of members of one shard, of one member of a group at a time."""

    __slots__ = ("_ledger", "computations")

    def __init__(self, ledger: GroupLedger) -> None:
        self._ledger = ledger
        self.computations: Final = Computations(ledger, ASSIGNMENT)

    def is_large(self, member: ConsumerMember, target: Assignment) -> bool:
        """Returns true if the member's next assignment takes too long to be decided at once.

        A member that joins needs an epoch at once, so it gets its assignment at once: it has no target yet.
        """
        return member.epoch > 0 and has_many_partitions(member, target)

    def is_preparing(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Returns true if the member's next heartbeat may get an assignment."""
        return member.prepared is not None or self.computations.is_running(group)

    def write(self, group: ConsumerGroup, member: ConsumerMember) -> bool:
        """Write the prepared assignment of a member. Returns false if it has none, or an outdated one."""
        prepared, member.prepared = member.prepared, None
        if prepared is None or not prepared.fits(member, group.assignment_epoch, group.target_of(member)):
            return False
        self._ledger.log_encoded(prepared.record)
        group.apply_prepared(member, prepared)
        return True

    def begin(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        subscribed: Collection[bytes],
        owned: Mapping[bytes, Collection[int]] | None,
    ) -> None:
        """Prepare the member's next assignment. No other one of the group may be in progress.

        `owned` has the partitions that the member reports. Those that it revokes later are not free yet.
        """
        self.computations.begin(group, self._prepare(group, member, subscribed, owned))

    def _prepare(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        subscribed: Collection[bytes],
        owned: Mapping[bytes, Collection[int]] | None,
    ) -> Iterator[None]:
        epoch, target, topics = group.assignment_epoch, group.target_of(member), member.topics
        before, revoked_before, member_epoch = member.assigned, member.revoking, member.epoch
        value = yield from towards_target(member, epoch, target, subscribed, owned, group.owners)
        if value is None:
            return
        record = yield from encode_in_slices(member.assignment_key(group.id), value)
        assigned = yield from from_record(value.assigned_partitions, value.member_epoch)
        revoking = yield from from_record(value.partitions_pending_revocation, value.member_epoch)
        member.prepared = PreparedAssignment(
            epoch,
            target,
            topics,
            before,
            revoked_before,
            member_epoch,
            record,
            value,
            assigned,
            revoking,
            owned=(yield from _gained(member.id, (assigned, revoking), (before, revoked_before))),
            released=(yield from _missing((before, revoked_before), (assigned, revoking))),
        )


def has_many_partitions(member: ConsumerMember, target: Assignment) -> bool:
    """Whether a member has, or will have, so many partitions that they are not looked at in one step."""
    if len(target) + len(member.assigned) > TOPICS_AT_ONCE_MAX:
        return True
    has = sum(map(len, member.assigned.values()))
    return has + sum(map(len, target.values())) > PARTITIONS_AT_ONCE_MAX


def _gained(
    member_id: str, partitions: Sequence[Partitions], before: Sequence[Partitions]
) -> Generator[None, None, dict[bytes, dict[int, str]]]:
    """The new partitions of a member, as owners of partitions."""
    missing = yield from _missing(partitions, before)
    due = Due()
    gained = {}
    for topic, indexes in missing.items():
        gained[topic] = dict.fromkeys(indexes, member_id)
        if due.after(len(indexes)):
            yield
    return gained


def _missing(
    partitions: Sequence[Partitions], others: Sequence[Partitions]
) -> Generator[None, None, dict[bytes, Collection[int]]]:
    """The partitions that are not in others."""
    due = Due()
    missing: dict[bytes, Collection[int]] = {}
    for some in partitions:
        for topic, indexes in some.items():
            found: Collection[int] = indexes.keys()
            for other in others:
                if topic in other:
                    found = found - other[topic].keys()
            if found:
                missing[topic] = {*missing.get(topic, ()), *found}
            if due.after(len(indexes)):
                yield
    return missing
