"""Groups as administrators see them: ListGroups, DescribeGroups, DeleteGroups."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from penstock.groups.classic import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.ledger import Ledger
from penstock.groups.offsets import Offsets
from penstock.model.errors import ApiError, ErrorCode
from penstock.wire.apis.delete_groups import DeletableGroupResult
from penstock.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.wire.apis.list_groups import ListedGroup

__all__ = ["delete_group", "describe_classic", "list_groups"]

#: what DescribeGroups shows where there is no such group
_DEAD = "Dead"


def list_groups(ledger: Ledger, states: Collection[str], types: Collection[str]) -> Iterator[ListedGroup]:
    """The groups in one of `states` and of one of `types`, in lower case; an empty filter lets all pass."""
    for group in ledger.groups.values():
        if (not states or group.state_name.lower() in states) and (not types or group.type.lower() in types):
            yield ListedGroup(
                group_id=group.id,
                protocol_type=group.shown_protocol_type,
                group_state=group.state_name,
                group_type=group.type,
            )


def describe_classic(ledger: Ledger, group_id: str) -> DescribedGroup:
    """A classic group; GROUP_ID_NOT_FOUND with the state Dead for any other."""
    group = ledger.groups.get(group_id)
    if not isinstance(group, ClassicGroup):
        return DescribedGroup(
            group_id=group_id,
            group_state=_DEAD,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} not found."
            if group is None
            else f"Group {group_id} is not a classic group.",
        )
    protocol = group.protocol if group.state is ClassicState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.shown_protocol_type,
        protocol_data=protocol or "",
        members=[_described(member, protocol) for member in group.members.values()],
    )


def _described(member: ClassicMember, protocol: str | None) -> DescribedGroupMember:
    """What a member wants and has is shown once the group has agreed on it."""
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.protocols[protocol],
        member_assignment=b"" if protocol is None else member.assignment,
    )


def delete_group(ledger: Ledger, offsets: Offsets, group_id: str) -> DeletableGroupResult:
    try:
        group = ledger.group(group_id)
        group.check_deletion()
    except ApiError as e:
        return DeletableGroupResult(group_id=group_id, error_code=e.code)
    offsets.delete_all(group_id)
    for key in group.record_keys():
        ledger.write(key, None)
    return DeletableGroupResult(group_id=group_id)
