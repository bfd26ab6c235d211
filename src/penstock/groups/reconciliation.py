"""The next step of a member towards its target: revoke partitions first, then take free ones.

Invariant: a partition has at most one owner. The old owner has to report that it has revoked the partition
before it is assigned again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from penstock.groups.consumer_member import ConsumerMember, MemberState, Partitions, current_assignment
from penstock.groups.records import ConsumerGroupCurrentMemberAssignmentValue

__all__ = ["next_assignment"]


def next_assignment(
    member: ConsumerMember,
    *,
    target_epoch: int,
    target: Mapping[bytes, Collection[int]],
    subscribed: Collection[bytes],
    subscription_changed: bool,
    owned: Mapping[bytes, Collection[int]] | None,
    is_free: Callable[[bytes, int], bool],
) -> ConsumerGroupCurrentMemberAssignmentValue | None:
    """The member's next assignment; None if it does not change.

    `owned` has the partitions that the member reports, None if the request has none. `is_free` returns true
    if no other member owns a partition.
    """
    if member.state is MemberState.UNREVOKED and _owns_any(owned, member.revoking):
        # The member has not revoked its partitions yet: it may have to revoke more, and gets none.
        return _without_unsubscribed(member, subscribed, owned) if subscription_changed else None
    if member.state is MemberState.STABLE and member.epoch == target_epoch:
        return _without_unsubscribed(member, subscribed, owned) if subscription_changed else None
    return _towards(member, target_epoch, target, subscribed, owned, is_free)


def _towards(
    member: ConsumerMember,
    target_epoch: int,
    target: Mapping[bytes, Collection[int]],
    subscribed: Collection[bytes],
    owned: Mapping[bytes, Collection[int]] | None,
    is_free: Callable[[bytes, int], bool],
) -> ConsumerGroupCurrentMemberAssignmentValue | None:
    kept: Partitions = {}
    revoking: Partitions = {}
    wanted = {topic: set(indexes) for topic, indexes in target.items() if topic in subscribed}
    for topic, epochs in member.assigned.items():
        for index, epoch in epochs.items():
            where = kept if index in wanted.get(topic, ()) else revoking
            where.setdefault(topic, {})[index] = epoch
    if revoking and _owns_any(owned, revoking):
        # The member stays in its epoch until it has revoked these.
        return _changed(member, member.epoch, MemberState.UNREVOKED, kept, revoking)
    waits = False
    for topic, indexes in wanted.items():
        for index in sorted(indexes):
            if index in kept.get(topic, ()):
                continue
            if is_free(topic, index):
                kept.setdefault(topic, {})[index] = target_epoch
            else:
                waits = True
    state = MemberState.UNRELEASED if waits else MemberState.STABLE
    return _changed(member, target_epoch, state, kept, {})


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
    member: ConsumerMember, epoch: int, state: MemberState, assigned: Partitions, revoking: Partitions
) -> ConsumerGroupCurrentMemberAssignmentValue | None:
    same = (
        epoch == member.epoch
        and state is member.state
        and assigned == member.assigned
        and revoking == member.revoking
    )
    return None if same else current_assignment(epoch, member.epoch, state, assigned, revoking)
