"""Administration of groups: ListGroups, DescribeGroups, ConsumerGroupDescribe, DeleteGroups."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from penstock.groups.classic import ClassicGroup, ClassicMember, ClassicState
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.consumer_member import ConsumerMember
from penstock.groups.group import Group
from penstock.groups.ledger import GroupLedger
from penstock.groups.offsets import Offsets
from penstock.metadata.image import ClusterImage
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.apis import consumer_group_describe as described
from penstock.wire.apis.delete_groups import DeletableGroupResult
from penstock.wire.apis.describe_groups import DescribedGroup, DescribedGroupMember
from penstock.wire.apis.list_groups import ListedGroup

__all__ = ["delete_group", "describe_classic", "describe_consumer", "list_groups"]

#: the state of an unknown group in DescribeGroups
_DEAD: Final = "Dead"
#: kinds of members in ConsumerGroupDescribe
_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


def list_groups(
    groups: Iterable[Group], states: Collection[str], types: Collection[str]
) -> Iterator[ListedGroup]:
    """The groups in one of `states` and of one of `types`, in lower case. An empty filter matches all."""
    for group in groups:
        if (not states or group.state_name.lower() in states) and (not types or group.type in types):
            yield ListedGroup(
                group_id=group.id,
                protocol_type=group.shown_protocol_type,
                group_state=group.state_name,
                group_type=group.type,
            )


def describe_classic(ledger: GroupLedger, group_id: str) -> DescribedGroup:
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
    """Metadata and assignment are described only for a stable group, which has a `protocol`."""
    return DescribedGroupMember(
        member_id=member.id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.protocols[protocol],
        member_assignment=b"" if protocol is None else member.assignment,
    )


def describe_consumer(ledger: GroupLedger, group_id: str) -> described.DescribedGroup:
    """A consumer group; GROUP_ID_NOT_FOUND for any other."""
    group = ledger.groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        reason = "not found" if group is None else "is not a consumer group"
        return described.DescribedGroup(
            group_id=group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {group_id} {reason}.",
        )
    return described.DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or ledger.env.settings.consumer_assignors[0],
        members=[_consumer_member(group, member, ledger.env.image) for member in group.members.values()],
    )


def _consumer_member(group: ConsumerGroup, member: ConsumerMember, image: ClusterImage) -> described.Member:
    """Partitions that the member has to revoke are part of its assignment until it has revoked them."""
    has: dict[bytes, set[int]] = {}
    for partitions in (member.assigned, member.revoking):
        for topic_id, epochs in partitions.items():
            has.setdefault(topic_id, set()).update(epochs)
    return described.Member(
        member_id=member.id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=list(member.topics),
        subscribed_topic_regex=member.regex or "",
        assignment=_shown(has, image),
        target_assignment=_shown(group.target.get(member.id, {}), image),
        member_type=_CLASSIC_MEMBER if member.classic is not None else _CONSUMER_MEMBER,
    )


def _shown(partitions: Mapping[bytes, set[int]], image: ClusterImage) -> described.Assignment:
    return described.Assignment(
        topic_partitions=[
            described.TopicPartitions(
                topic_id=topic_id,
                topic_name=image.topics_by_id[TopicId(topic_id)].name,
                partitions=sorted(indexes),
            )
            for topic_id, indexes in partitions.items()
            if topic_id in image.topics_by_id
        ]
    )


def delete_group(ledger: GroupLedger, offsets: Offsets, group_id: str) -> DeletableGroupResult:
    try:
        group = ledger.group(group_id)
        group.check_deletion()
    except ApiError as e:
        return DeletableGroupResult(group_id=group_id, error_code=e.code)
    offsets.delete_all(group_id)
    for key in list(group.record_keys()):
        ledger.write(key, None)
    return DeletableGroupResult(group_id=group_id)
