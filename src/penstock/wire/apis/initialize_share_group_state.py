"""InitializeShareGroupState, version 0. From a group coordinator to a share coordinator."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, int64, nullable_string, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    state_epoch: int = int32()
    start_offset: int = int64()


class InitializeStateData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class InitializeShareGroupStateRequest(Struct):
    group_id: str = string()
    topics: list[InitializeStateData] = array(InitializeStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class InitializeStateResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class InitializeShareGroupStateResponse(Struct):
    results: list[InitializeStateResult] = array(InitializeStateResult)


INITIALIZE_SHARE_GROUP_STATE = Api(
    83,
    "InitializeShareGroupState",
    (0, 0),
    flexible_from=0,
    request=InitializeShareGroupStateRequest,
    response=InitializeShareGroupStateResponse,
)
