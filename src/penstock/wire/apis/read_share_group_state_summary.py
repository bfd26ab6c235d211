"""ReadShareGroupStateSummary, versions 0 to 1. From a group coordinator to a share coordinator."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, int64, nullable_string, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ReadShareGroupStateSummaryRequest(Struct):
    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)


class PartitionResult(Struct):
    partition: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32("1+", default=-1)


class ReadStateSummaryResult(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionResult] = array(PartitionResult)


class ReadShareGroupStateSummaryResponse(Struct):
    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)


READ_SHARE_GROUP_STATE_SUMMARY = Api(
    87,
    "ReadShareGroupStateSummary",
    (0, 1),
    flexible_from=0,
    request=ReadShareGroupStateSummaryRequest,
    response=ReadShareGroupStateSummaryResponse,
)
