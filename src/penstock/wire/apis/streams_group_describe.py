"""StreamsGroupDescribe, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.streams_group_heartbeat import Endpoint, KeyValue, TaskIds, TaskOffset, TopicInfo
from penstock.wire.schema import (
    Struct,
    array,
    boolean,
    int16,
    int32,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    struct,
)


class StreamsGroupDescribeRequest(Struct):
    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string())
    repartition_sink_topics: list[str] = array(string())
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)


class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] | None = nullable_array(Subtopology)


class Assignment(Struct):
    active_tasks: list[TaskIds] = array(TaskIds)
    standby_tasks: list[TaskIds] = array(TaskIds)
    warmup_tasks: list[TaskIds] = array(TaskIds)


class Member(Struct):
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nullable_struct(Endpoint)
    client_tags: list[KeyValue] = array(KeyValue)
    task_offsets: list[TaskOffset] = array(TaskOffset)
    task_end_offsets: list[TaskOffset] = array(TaskOffset)
    assignment: Assignment = struct(Assignment)
    target_assignment: Assignment = struct(Assignment)
    is_classic: bool = boolean()


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    topology: Topology | None = nullable_struct(Topology)
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class StreamsGroupDescribeResponse(Struct):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)


STREAMS_GROUP_DESCRIBE = Api(
    89,
    "StreamsGroupDescribe",
    (0, 0),
    flexible_from=0,
    request=StreamsGroupDescribeRequest,
    response=StreamsGroupDescribeResponse,
)
