"""The next step of a member towards its target: give back first, then take what is free.

A partition changes hands only through a moment in which nobody has it: its old owner has to report that it no
longer has it before it is assigned again. So it is never in two members' assignments, whatever the epochs.
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
    """What the member has next, or None if nothing changes.

    `owned` is what it says that it has, None where it does not say; `is_free` tells whether nobody else has a
    partition.
    """
    if member.state is MemberState.UNREVOKED and _owns_any(owned, member.revoking):
        # It still has what it was asked for: more may be asked for, nothing may be given.
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
        # It stays in its epoch until it has given these back.
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
    """Ask back at once what the member no longer subscribes to: a new target may take a while."""
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
    """Whether the member has, or may have, any of `partitions`."""
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
