"""WriteShareGroupState, versions 0 to 1. From a partition leader to a share coordinator."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int8, int16, int32, int64, nullable_string, string, uuid


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1)
    state_batches: list[StateBatch] = array(StateBatch)


class WriteStateData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class WriteShareGroupStateRequest(Struct):
    group_id: str = string()
    topics: list[WriteStateData] = array(WriteStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class WriteStateResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class WriteShareGroupStateResponse(Struct):
    results: list[WriteStateResult] = array(WriteStateResult)


WRITE_SHARE_GROUP_STATE = Api(
    85,
    "WriteShareGroupState",
    (0, 1),
    flexible_from=0,
    request=WriteShareGroupStateRequest,
    response=WriteShareGroupStateResponse,
)
