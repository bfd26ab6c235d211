"""A classic group as the one record that the log has of it (GroupMetadata)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.groups.classic import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.records import (
    GroupMetadataKey,
    GroupMetadataMember,
    GroupMetadataValue,
    encode_record,
)

__all__ = ["fits_record", "group_from_record", "group_record"]

#: more than the texts and numbers of an ordinary member have
_MEMBER_BYTES: Final = 2048


def fits_record(group: ClassicGroup, size_max: int) -> bool:
    """Returns true if the record of the group's present state has at most `size_max` bytes.

    The record of a group that is not large is not built for that.
    """
    protocol = group.protocol or ""
    size = sum(len(m.protocols[protocol]) + len(m.assignment) for m in group.members.values())
    if size + _MEMBER_BYTES * (1 + len(group.members)) <= size_max:
        return True
    key, value = encode_record(*group_record(group)())
    return len(key) + len(value or b"") <= size_max


def group_record(group: ClassicGroup) -> Callable[[], tuple[GroupMetadataKey, GroupMetadataValue]]:
    """A function that builds the record of the group's present state.

    Why: for a large group that takes as long as the decision, so it is done later. Fields of members that may
    change until then are copied here.
    """
    key = GroupMetadataKey(group=group.id)
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=-1 if group.since_ms is None else group.since_ms,
    )
    protocol = group.protocol or ""
    members = [
        (
            m.id,
            m.instance_id,
            m.client_id,
            m.client_host,
            m.rebalance_timeout_ms,
            m.session_timeout_ms,
            m.protocols[protocol],
            m.assignment,
        )
        for m in group.members.values()
    ]

    def make() -> tuple[GroupMetadataKey, GroupMetadataValue]:
        value.members = [_member_record(*fields) for fields in members]
        return key, value

    return make


def _member_record(
    id: str,
    instance_id: str | None,
    client_id: str,
    client_host: str,
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
    subscription: bytes,
    assignment: bytes,
) -> GroupMetadataMember:
    return GroupMetadataMember(
        member_id=id,
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout=rebalance_timeout_ms,
        session_timeout=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def group_from_record(key: GroupMetadataKey, value: GroupMetadataValue) -> ClassicGroup:
    """The group that a record describes."""
    group = ClassicGroup(key.group, value.current_state_timestamp)
    if value.current_state_timestamp == -1:
        group.since_ms = None
    group.generation = value.generation
    group.protocol_type = value.protocol_type or None
    for m in value.members:
        member = ClassicMember(
            id=m.member_id,
            instance_id=m.group_instance_id,
            client_id=m.client_id,
            client_host=m.client_host,
            rebalance_timeout_ms=m.session_timeout if m.rebalance_timeout == -1 else m.rebalance_timeout,
            session_timeout_ms=m.session_timeout,
            protocols={value.protocol or "": m.subscription},
            assignment=m.assignment,
        )
        group.add(member, value.protocol_type, None)
    if value.leader in group.members:
        group.leader = value.leader
    group.protocol = value.protocol
    group.state = ClassicState.STABLE if group.members else ClassicState.EMPTY
    group.topics = group.topics_read()
    return group
