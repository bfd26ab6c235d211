"""StreamsGroupHeartbeat, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    struct,
    uint16,
)


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class TopicInfo(Struct):
    """An internal topic. 0 partitions are derived from the source topics, 0 replicas are the default."""

    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class TaskOffset(Struct):
    subtopology_id: str = string()
    partition: int = int32()
    offset: int = int64()


class TaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32())


class CopartitionGroup(Struct):
    """Topics with the same number of partitions, as indexes of the lists of their subtopology."""

    source_topics: list[int] = array(int16())
    source_topic_regex: list[int] = array(int16())
    repartition_source_topics: list[int] = array(int16())


class Subtopology(Struct):
    subtopology_id: str = string()
    source_topics: list[str] = array(string())
    source_topic_regex: list[str] = array(string())
    state_changelog_topics: list[TopicInfo] = array(TopicInfo)
    repartition_sink_topics: list[str] = array(string())
    repartition_source_topics: list[TopicInfo] = array(TopicInfo)
    copartition_groups: list[CopartitionGroup] = array(CopartitionGroup)


class Topology(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)


class StreamsGroupHeartbeatRequest(Struct):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    endpoint_information_epoch: int = int32()
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology: Topology | None = nullable_struct(Topology)
    active_tasks: list[TaskIds] | None = nullable_array(TaskIds)
    standby_tasks: list[TaskIds] | None = nullable_array(TaskIds)
    warmup_tasks: list[TaskIds] | None = nullable_array(TaskIds)
    process_id: str | None = nullable_string()
    user_endpoint: Endpoint | None = nullable_struct(Endpoint)
    client_tags: list[KeyValue] | None = nullable_array(KeyValue)
    task_offsets: list[TaskOffset] | None = nullable_array(TaskOffset)
    task_end_offsets: list[TaskOffset] | None = nullable_array(TaskOffset)
    shutdown_application: bool = boolean()


class Status(Struct):
    status_code: int = int8()
    status_detail: str = string()


class TopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32())


class EndpointToPartitions(Struct):
    user_endpoint: Endpoint = struct(Endpoint)
    active_partitions: list[TopicPartition] = array(TopicPartition)
    standby_partitions: list[TopicPartition] = array(TopicPartition)


class StreamsGroupHeartbeatResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    member_id: str = string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    acceptable_recovery_lag: int = int32()
    task_offset_interval_ms: int = int32()
    status: list[Status] | None = nullable_array(Status, empty=True)
    active_tasks: list[TaskIds] | None = nullable_array(TaskIds)
    standby_tasks: list[TaskIds] | None = nullable_array(TaskIds)
    warmup_tasks: list[TaskIds] | None = nullable_array(TaskIds)
    endpoint_information_epoch: int = int32()
    partitions_by_user_endpoint: list[EndpointToPartitions] | None = nullable_array(EndpointToPartitions)


STREAMS_GROUP_HEARTBEAT = Api(
    88,
    "StreamsGroupHeartbeat",
    (0, 0),
    flexible_from=0,
    request=StreamsGroupHeartbeatRequest,
    response=StreamsGroupHeartbeatResponse,
)
