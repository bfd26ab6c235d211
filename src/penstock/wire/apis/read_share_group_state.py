"""ReadShareGroupState, version 0. From a partition leader to a share coordinator."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int8, int16, int32, int64, nullable_string, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateRequest(Struct):
    group_id: str = string()
    topics: list[ReadStateData] = array(ReadStateData)


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    state_epoch: int = int32()
    start_offset: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ReadStateResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateResponse(Struct):
    results: list[ReadStateResult] = array(ReadStateResult)


READ_SHARE_GROUP_STATE = Api(
    84,
    "ReadShareGroupState",
    (0, 0),
    flexible_from=0,
    request=ReadShareGroupStateRequest,
    response=ReadShareGroupStateResponse,
)
