"""ListPartitionReassignments, version 0 (KIP-455)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    OWN_TAGS,
    Struct,
    array,
    int16,
    int32,
    nullable_array,
    nullable_string,
    string,
)


class ListPartitionReassignmentsTopic(Struct):
    name: str = string()
    partition_indexes: list[int] = array(int32())


class ListPartitionReassignmentsRequest(Struct):
    timeout_ms: int = int32(default=60000)
    #: null for all of them
    topics: list[ListPartitionReassignmentsTopic] | None = nullable_array(ListPartitionReassignmentsTopic)


class OngoingPartitionReassignment(Struct):
    partition_index: int = int32()
    replicas: list[int] = array(int32())
    adding_replicas: list[int] = array(int32())
    removing_replicas: list[int] = array(int32())
    #: why the controller has started it by itself; empty for one that was requested
    reason: str = string(tag=OWN_TAGS)


class OngoingTopicReassignment(Struct):
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


class ListPartitionReassignmentsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)


LIST_PARTITION_REASSIGNMENTS = Api(
    46,
    "ListPartitionReassignments",
    (0, 0),
    flexible_from=0,
    request=ListPartitionReassignmentsRequest,
    response=ListPartitionReassignmentsResponse,
)
