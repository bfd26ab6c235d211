"""ReadShareGroupStateSummary, versions 0 to 1. From a group coordinator to a share coordinator.

With the tagged field `shards`, which is not Kafka's, a partition leader reads the lowest start offsets of all
share groups from shards of the share coordinator.
"""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import OWN_TAGS, Struct, array, int16, int32, int64, nullable_string, string, uuid


class PartitionData(Struct):
    partition: int = int32()
    leader_epoch: int = int32()


class ReadStateSummaryData(Struct):
    topic_id: bytes = uuid()
    partitions: list[PartitionData] = array(PartitionData)


class ShardToRead(Struct):
    """A partition of `__share_group_state`, and the leader epoch that its coordinator must have."""

    index: int = int32()
    leader_epoch: int = int32()


class ReadShareGroupStateSummaryRequest(Struct):
    group_id: str = string()
    topics: list[ReadStateSummaryData] = array(ReadStateSummaryData)
    #: the shards to read the lowest start offsets of `topics` from, instead of the summaries of one group
    shards: list[ShardToRead] = array(ShardToRead, tag=OWN_TAGS)


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


class LowestStart(Struct):
    """The lowest start offset of all share groups that read a partition; -1 if one has none yet."""

    topic_id: bytes = uuid()
    partition: int = int32()
    start_offset: int = int64()


class ShardResult(Struct):
    index: int = int32()
    error_code: int = int16()
    starts: list[LowestStart] = array(LowestStart)


class ReadShareGroupStateSummaryResponse(Struct):
    results: list[ReadStateSummaryResult] = array(ReadStateSummaryResult)
    shards: list[ShardResult] = array(ShardResult, tag=OWN_TAGS)


READ_SHARE_GROUP_STATE_SUMMARY = Api(
    87,
    "ReadShareGroupStateSummary",
    (0, 1),
    flexible_from=0,
    request=ReadShareGroupStateSummaryRequest,
    response=ReadShareGroupStateSummaryResponse,
)
