"""The next step of a member towards its target: revoke partitions first, then take free ones.

Invariant: a partition has at most one owner. The old owner has to report that it has revoked the partition
before it is assigned again.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping

from penstock.groups.assignors import Due
from penstock.groups.consumer_member import ConsumerMember, Partitions, current_assignment
from penstock.groups.epoch_group import MemberState
from penstock.groups.records import ConsumerGroupCurrentMemberAssignmentValue
from penstock.wire.slicing import exhausted

__all__ = ["next_assignment", "stays", "towards_target"]


def next_assignment(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Mapping[bytes, Collection[int]],
    subscribed: Collection[bytes],
    subscription_changed: bool,
    owned: Mapping[bytes, Collection[int]] | None,
    owners: Mapping[bytes, Mapping[int, str]],
) -> ConsumerGroupCurrentMemberAssignmentValue | None:
    """The member's next assignment; None if it does not change.

    `owned` has the partitions that the member reports, None if the request has none. `owners` has the members
    that own partitions, by topic. No loop calls a function: a member may get 30,000 partitions in one step.
    """
    if stays(member, target_epoch, owned):
        return _without_unsubscribed(member, subscribed, owned) if subscription_changed else None
    return exhausted(towards_target(member, target_epoch, target, subscribed, owned, owners))


def stays(member: ConsumerMember, target_epoch: int, owned: Mapping[bytes, Collection[int]] | None) -> bool:
    """Returns true if the member gets no partitions of its target now."""
    if member.state is MemberState.UNREVOKED and _owns_any(owned, member.revoking):
        # The member has not revoked its partitions yet: it may have to revoke more, and gets none.
        return True
    return member.is_reconciled_to(target_epoch)


def towards_target(
    member: ConsumerMember,
    target_epoch: int,
    target: Mapping[bytes, Collection[int]],
    subscribed: Collection[bytes],
    owned: Mapping[bytes, Collection[int]] | None,
    owners: Mapping[bytes, Mapping[int, str]],
) -> Generator[None, None, ConsumerGroupCurrentMemberAssignmentValue | None]:
    """The assignment of a member that does not stay; yields after some topics and partitions."""
    due = Due()
    kept: Partitions = {}
    revoking: Partitions = {}
    wanted = {
        topic: indexes if isinstance(indexes, set) else set(indexes)
        for topic, indexes in target.items()
        if topic in subscribed
    }
    for topic, epochs in member.assigned.items():
        indexes = wanted.get(topic, set())
        if gone := {index: epoch for index, epoch in epochs.items() if index not in indexes}:
            revoking[topic] = gone
        if len(gone) < len(epochs):
            kept[topic] = {index: epoch for index, epoch in epochs.items() if index in indexes}
        if due.after(len(epochs)):
            yield
    if revoking and _owns_any(owned, revoking):
        # The member stays in its epoch until it has revoked these.
        return _changed(member, member.epoch, MemberState.UNREVOKED, kept, revoking)
    waits = False
    #: of topics of which the member keeps nothing
    added: dict[bytes, list[int]] = {}
    for topic, indexes in wanted.items():
        has = kept.get(topic)
        missing = sorted(indexes.difference(has) if has else indexes)
        taken = owners.get(topic, {})
        free = missing
        if not taken.keys().isdisjoint(indexes):
            free = [index for index in missing if taken.get(index, member.id) == member.id]
        if free and has:
            kept[topic] = has | dict.fromkeys(free, target_epoch)
        elif free:
            added[topic] = free
        waits = waits or len(free) < len(missing)
        if due.after(len(indexes)):
            yield
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return _changed(member, target_epoch, state, kept, {}, added)


def _without_unsubscribed(
    member: ConsumerMember, subscribed: Collection[bytes], owned: Mapping[bytes, Collection[int]] | None
) -> ConsumerGroupCurrentMemberAssignmentValue | None:
    """Revoke partitions of topics without a subscription, without waiting for a new target."""
    gone = {topic: epochs for topic, epochs in member.assigned.items() if topic not in subscribed}
    if not gone:
        return None
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic in subscribed}
    revoking = {topic: dict(epochs) for topic, epochs in member.revoking.items()}
    for topic, epochs in gone.items():
        revoking.setdefault(topic, {}).update(epochs)
    if _owns_any(owned, revoking):
        return _changed(member, member.epoch, MemberState.UNREVOKED, kept, revoking)
    return _changed(member, member.epoch, member.state, kept, member.revoking)


def _owns_any(owned: Mapping[bytes, Collection[int]] | None, partitions: Partitions) -> bool:
    """Returns true if the member owns, or may own, any of `partitions`."""
    if owned is None:
        return True
    return any(index in partitions.get(topic, ()) for topic, indexes in owned.items() for index in indexes)


def _changed(
    member: ConsumerMember,
    epoch: int,
    state: MemberState,
    assigned: Partitions,
    revoking: Partitions,
    added: Mapping[bytes, list[int]] | None = None,
) -> ConsumerGroupCurrentMemberAssignmentValue | None:
    same = (
        not added
        and epoch == member.epoch
        and state is member.state
        and assigned == member.assigned
        and revoking == member.revoking
    )
    return None if same else current_assignment(epoch, member.epoch, state, assigned, revoking, added)
