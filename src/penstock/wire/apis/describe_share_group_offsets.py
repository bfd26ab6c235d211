"""DescribeShareGroupOffsets, versions 0 to 1. Version 1 has the lag."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    Struct,
    array,
    int16,
    int32,
    int64,
    nullable_array,
    nullable_string,
    string,
    uuid,
)


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string()
    partitions: list[int] = array(int32())


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = nullable_array(
        DescribeShareGroupOffsetsRequestTopic
    )


class DescribeShareGroupOffsetsRequest(Struct):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = array(DescribeShareGroupOffsetsRequestGroup)


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32()
    start_offset: int = int64()
    leader_epoch: int = int32()
    lag: int = int64("1+", default=-1)
    error_code: int = int16()
    error_message: str | None = nullable_string()


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = array(
        DescribeShareGroupOffsetsResponsePartition
    )


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: str = string()
    topics: list[DescribeShareGroupOffsetsResponseTopic] = array(DescribeShareGroupOffsetsResponseTopic)
    error_code: int = int16()
    error_message: str | None = nullable_string()


class DescribeShareGroupOffsetsResponse(Struct):
    throttle_time_ms: int = int32()
    groups: list[DescribeShareGroupOffsetsResponseGroup] = array(DescribeShareGroupOffsetsResponseGroup)


DESCRIBE_SHARE_GROUP_OFFSETS = Api(
    90,
    "DescribeShareGroupOffsets",
    (0, 1),
    flexible_from=0,
    request=DescribeShareGroupOffsetsRequest,
    response=DescribeShareGroupOffsetsResponse,
)
