"""The records of streams groups in `__consumer_offsets` (KIP-1071), as in Kafka."""

from __future__ import annotations

from penstock.wire.schema import (
    Struct,
    array,
    int8,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    uint16,
)

__all__ = [
    "CopartitionGroup",
    "CurrentTaskIds",
    "Endpoint",
    "KeyValue",
    "StreamsGroupCurrentMemberAssignmentKey",
    "StreamsGroupCurrentMemberAssignmentValue",
    "StreamsGroupMemberMetadataKey",
    "StreamsGroupMemberMetadataValue",
    "StreamsGroupMetadataKey",
    "StreamsGroupMetadataValue",
    "StreamsGroupTargetAssignmentMemberKey",
    "StreamsGroupTargetAssignmentMemberValue",
    "StreamsGroupTargetAssignmentMetadataKey",
    "StreamsGroupTargetAssignmentMetadataValue",
    "StreamsGroupTopologyKey",
    "StreamsGroupTopologyValue",
    "Subtopology",
    "TargetTaskIds",
    "TopicInfo",
]


class KeyValue(Struct):
    key: str = string()
    value: str = string()


class StreamsGroupMetadataKey(Struct):
    group_id: str = string()


class StreamsGroupMetadataValue(Struct):
    epoch: int = int32()
    #: of the topics of the topology in this epoch; a different hash calls for a new assignment
    metadata_hash: int = int64()
    #: the epoch of the topology whose topics exist as they must; -1 if they do not
    validated_topology_epoch: int = int32(tag=0, default=-1)
    last_assignment_configs: list[KeyValue] | None = nullable_array(KeyValue, tag=1)


class StreamsGroupMemberMetadataKey(Struct):
    group_id: str = string()
    member_id: str = string()


class Endpoint(Struct):
    host: str = string()
    port: int = uint16()


class StreamsGroupMemberMetadataValue(Struct):
    instance_id: str | None = nullable_string()
    rack_id: str | None = nullable_string()
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout_ms: int = int32(default=-1)
    topology_epoch: int = int32()
    process_id: str = string()
    user_endpoint: Endpoint | None = nullable_struct(Endpoint)
    client_tags: list[KeyValue] = array(KeyValue)


class StreamsGroupTargetAssignmentMetadataKey(Struct):
    group_id: str = string()


class StreamsGroupTargetAssignmentMetadataValue(Struct):
    assignment_epoch: int = int32()
    assignment_timestamp: int = int64(tag=0)


class StreamsGroupTargetAssignmentMemberKey(Struct):
    group_id: str = string()
    member_id: str = string()


class TargetTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32())


class StreamsGroupTargetAssignmentMemberValue(Struct):
    active_tasks: list[TargetTaskIds] = array(TargetTaskIds)
    standby_tasks: list[TargetTaskIds] = array(TargetTaskIds)
    warmup_tasks: list[TargetTaskIds] = array(TargetTaskIds)


class StreamsGroupCurrentMemberAssignmentKey(Struct):
    group_id: str = string()
    member_id: str = string()


class CurrentTaskIds(Struct):
    subtopology_id: str = string()
    partitions: list[int] = array(int32())
    #: of active tasks: the member epoch at which each was assigned
    assignment_epochs: list[int] | None = nullable_array(int32(), tag=0)


class StreamsGroupCurrentMemberAssignmentValue(Struct):
    member_epoch: int = int32()
    previous_member_epoch: int = int32()
    state: int = int8()
    active_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks: list[CurrentTaskIds] = array(CurrentTaskIds)
    active_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    standby_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)
    warmup_tasks_pending_revocation: list[CurrentTaskIds] = array(CurrentTaskIds)


class StreamsGroupTopologyKey(Struct):
    group_id: str = string()


class TopicInfo(Struct):
    name: str = string()
    partitions: int = int32()
    replication_factor: int = int16()
    topic_configs: list[KeyValue] = array(KeyValue)


class CopartitionGroup(Struct):
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


class StreamsGroupTopologyValue(Struct):
    epoch: int = int32()
    subtopologies: list[Subtopology] = array(Subtopology)
