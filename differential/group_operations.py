"""Random operations of groups: members of both protocols, offsets, administration.

A classic group has one member at a time: a second one would block until the first one joins again.
"""

from __future__ import annotations

import struct

from differential.model import Group, Model
from differential.operations import Operation, epoch_label
from penstock.wire.apis.consumer_group_describe import (
    CONSUMER_GROUP_DESCRIBE,
    ConsumerGroupDescribeRequest,
)
from penstock.wire.apis.consumer_group_heartbeat import (
    CONSUMER_GROUP_HEARTBEAT,
    ConsumerGroupHeartbeatRequest,
)
from penstock.wire.apis.delete_groups import DELETE_GROUPS, DeleteGroupsRequest
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.heartbeat import HEARTBEAT, HeartbeatRequest
from penstock.wire.apis.join_group import (
    JOIN_GROUP,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
)
from penstock.wire.apis.leave_group import (
    LEAVE_GROUP,
    LeaveGroupRequest,
    MemberIdentity,
)
from penstock.wire.apis.list_groups import LIST_GROUPS, ListGroupsRequest
from penstock.wire.apis.offset_commit import (
    OFFSET_COMMIT,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.apis.offset_delete import (
    OFFSET_DELETE,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.apis.sync_group import (
    SYNC_GROUP,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

__all__ = [
    "classic_member",
    "commit",
    "committed",
    "consumer_member",
    "delete_group",
    "delete_offsets",
    "describe_groups",
    "find_coordinator",
    "list_groups",
]

NOBODY = "~nobody"


def classic_member(model: Model) -> Operation:
    """The next step of a group's member: join, sync, heartbeat or leave."""
    group = model.pick(*model.classic_groups)
    if not group.member:
        group.member = model.new_member()
        return _join(model, group, group.member, is_new=True)
    step = model.pick(
        _rejoin,
        _rejoin,
        _sync,
        _sync,
        _sync,
        _heartbeat,
        _heartbeat,
        _heartbeat,
        _leave,
    )
    return step(model, group)


def _join(model: Model, group: Group, member: str, *, is_new: bool) -> Operation:
    version = model.version(JOIN_GROUP)
    request = JoinGroupRequest(
        group_id=group.name if model.chance(0.97) else "",
        session_timeout_ms=30_000 if model.chance(0.93) else model.pick(0, -1, 2**31 - 1),
        rebalance_timeout_ms=5_000,
        member_id="" if is_new else member,
        protocol_type="consumer" if model.chance(0.95) else model.pick("", "connect"),
        protocols=[
            JoinGroupRequestProtocol(name=name, metadata=_subscription(model))
            for name in model.pick(("range",), ("range", "roundrobin"), ("range",), ())
        ],
    )
    return Operation(
        "classic",
        JOIN_GROUP,
        version,
        request,
        binds=member if is_new else None,
        member=member,
    )


def _rejoin(model: Model, group: Group) -> Operation:
    return _join(model, group, group.member, is_new=False)


def _sync(model: Model, group: Group) -> Operation:
    named = model.chance(0.8)
    request = SyncGroupRequest(
        group_id=group.name,
        generation_id=_generation(model, group),
        member_id=group.member,
        protocol_type="consumer" if named else None,
        protocol_name="range" if named else model.pick(None, "other"),
        assignments=[SyncGroupRequestAssignment(member_id=group.member, assignment=b"\0\1mine")],
    )
    return Operation("classic", SYNC_GROUP, model.version(SYNC_GROUP), request)


def _heartbeat(model: Model, group: Group) -> Operation:
    request = HeartbeatRequest(
        group_id=group.name,
        generation_id=_generation(model, group),
        member_id=_member(model, group),
    )
    return Operation("classic", HEARTBEAT, model.version(HEARTBEAT), request)


def _leave(model: Model, group: Group) -> Operation:
    member, group.member = group.member, ""
    request = LeaveGroupRequest(
        group_id=group.name,
        member_id=member,
        members=[MemberIdentity(member_id=member)],
    )
    return Operation("classic", LEAVE_GROUP, model.version(LEAVE_GROUP), request)


def consumer_member(model: Model) -> Operation:
    """A heartbeat of a member of the new protocol, which joins and leaves with it, too."""
    group = model.pick(*model.consumer_groups)
    if not group.members or model.chance(0.2):
        return _join_consumers(model, group)
    member = model.pick(*group.members)
    instance_id = group.members[member]
    leaves = model.chance(0.15)
    epoch = epoch_label(member)
    if leaves:
        del group.members[member]
        epoch = -1 if instance_id is None else model.pick(-1, -2)
    elif model.chance(0.05):
        epoch = model.pick(0, 1, 100, -2, -3)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group.name, member_id=member, member_epoch=epoch, instance_id=instance_id
    )
    if not leaves and model.chance(0.1):
        request.subscribed_topic_names = [topic.name for topic in model.some_topics()]
    return Operation(
        "consumer",
        CONSUMER_GROUP_HEARTBEAT,
        model.version(CONSUMER_GROUP_HEARTBEAT),
        request,
        member=member,
        acknowledges=not leaves and epoch > 0 and model.chance(0.6),
    )


def _join_consumers(model: Model, group: Group) -> Operation:
    member = model.new_member()
    instance_id = group.members[member] = model.pick(None, None, None, "~static-1", "~static-2")
    request = ConsumerGroupHeartbeatRequest(
        group_id=group.name,
        member_id=member,
        instance_id=instance_id,
        rebalance_timeout_ms=30_000 if model.chance(0.95) else -1,
        subscribed_topic_names=[topic.name for topic in model.some_topics()],
        server_assignor=_assignor(model, group),
        topic_partitions=[],
    )
    version = model.version(CONSUMER_GROUP_HEARTBEAT)
    return Operation("consumer", CONSUMER_GROUP_HEARTBEAT, version, request, member=member)


def commit(model: Model) -> Operation:
    group, version = model.group(), model.version(OFFSET_COMMIT)
    member = group.member or (model.pick(*group.members) if group.members else "")
    is_member = bool(member) and model.chance(0.7)
    request = OffsetCommitRequest(
        group_id=group.name,
        generation_id_or_member_epoch=epoch_label(member) if is_member else model.pick(-1, -1, 0, 3),
        member_id=member if is_member else model.pick("", "", "~nobody"),
        topics=[
            OffsetCommitRequestTopic(
                name=topic.name,
                topic_id=topic.id,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=model.number(50),
                        committed_leader_epoch=model.pick(-1, 0, 3),
                        committed_metadata=_note(model, at),
                    )
                    for at, index in enumerate(model.some_partitions(topic))
                ],
            )
            for topic in model.some_topics()
        ],
    )
    return Operation("offsets", OFFSET_COMMIT, version, request)


def committed(model: Model) -> Operation:
    group, version = model.group(), model.version(OFFSET_FETCH)
    topics = model.some_topics()
    wants_all = version >= 2 and model.chance(0.3)
    request = OffsetFetchRequest(
        group_id=group.name,
        topics=None
        if wants_all
        else [
            OffsetFetchRequestTopic(name=topic.name, partition_indexes=model.some_partitions(topic))
            for topic in topics
        ],
        groups=[
            OffsetFetchRequestGroup(
                group_id=name,
                topics=None
                if wants_all
                else [
                    OffsetFetchRequestTopics(
                        name=topic.name,
                        topic_id=topic.id,
                        partition_indexes=model.some_partitions(topic),
                    )
                    for topic in topics
                ],
            )
            for name in model.pick((group.name,), (group.name, "~none"))
        ],
        require_stable=model.chance(0.3),
    )
    return Operation("offsets", OFFSET_FETCH, version, request, is_read=True)


def delete_offsets(model: Model) -> Operation:
    request = OffsetDeleteRequest(
        group_id=model.group().name,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=index)
                    for index in model.some_partitions(topic)
                ],
            )
            for topic in model.some_topics()
        ],
    )
    return Operation("offsets", OFFSET_DELETE, 0, request)


def delete_group(model: Model) -> Operation:
    groups = model.pick((model.group().name,), (model.group().name, "~none"), ("",))
    request = DeleteGroupsRequest(groups_names=list(groups))
    return Operation("groups", DELETE_GROUPS, model.version(DELETE_GROUPS), request)


def describe_groups(model: Model) -> Operation:
    group, shows = model.group(), model.chance(0.3)
    if model.chance(0.5):
        request = DescribeGroupsRequest(groups=[group.name], include_authorized_operations=shows)
        version = model.version(DESCRIBE_GROUPS)
        return Operation("groups", DESCRIBE_GROUPS, version, request, is_read=True)
    described = ConsumerGroupDescribeRequest(group_ids=[group.name], include_authorized_operations=shows)
    version = model.version(CONSUMER_GROUP_DESCRIBE)
    return Operation("groups", CONSUMER_GROUP_DESCRIBE, version, described, is_read=True)


def list_groups(model: Model) -> Operation:
    request = ListGroupsRequest(
        states_filter=model.pick([], [], ["Stable"], ["empty"], ["Nothing"]),
        types_filter=model.pick([], [], ["classic"], ["CONSUMER"], ["streams"], ["nothing"]),
    )
    return Operation("groups", LIST_GROUPS, model.version(LIST_GROUPS), request, is_read=True)


def find_coordinator(model: Model) -> Operation:
    group = model.group()
    request = FindCoordinatorRequest(
        key=group.name,
        key_type=model.pick(0, 0, 0, 9),
        coordinator_keys=[group.name, "~none"],
    )
    return Operation(
        "groups",
        FIND_COORDINATOR,
        model.version(FIND_COORDINATOR),
        request,
        is_read=True,
    )


def _assignor(model: Model, group: Group) -> str | None:
    """One assignor per group: the choice between two with equal votes of members is not defined."""
    if model.chance(0.05):
        return "other"
    return "range" if group is model.consumer_groups[0] else model.pick(None, "uniform")


def _note(model: Model, at: int) -> str | None:
    """A note that is too long is never alone: Kafka remembers a group without offsets until it restarts."""
    return model.pick(None, "", "note", "x" * 5000) if at else model.pick(None, "", "note")


def _generation(model: Model, group: Group) -> int:
    return epoch_label(group.member) if model.chance(0.9) else model.pick(-1, 0, 99)


def _member(model: Model, group: Group) -> str:
    return group.member if model.chance(0.9) else NOBODY


def _subscription(model: Model) -> bytes:
    """Version 0 of a consumer's metadata."""
    name = b"topic"
    return b"\0\0" + struct.pack(">ih", 1, len(name)) + name + b"\xff\xff\xff\xff"
