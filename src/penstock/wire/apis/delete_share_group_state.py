"""DeleteShareGroupState, version 0. From a group coordinator to a share coordinator."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, nullable_string, string, uuid


class PartitionData(Struct):
    partition: int = int32()


class DeleteStateData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class DeleteShareGroupStateRequest(Struct):
    group_id: str = string()
    topics: list[DeleteStateData] = array(DeleteStateData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class DeleteStateResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class DeleteShareGroupStateResponse(Struct):
    results: list[DeleteStateResult] = array(DeleteStateResult)


DELETE_SHARE_GROUP_STATE = Api(
    86,
    "DeleteShareGroupState",
    (0, 0),
    flexible_from=0,
    request=DeleteShareGroupStateRequest,
    response=DeleteShareGroupStateResponse,
)
