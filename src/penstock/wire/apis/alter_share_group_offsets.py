"""AlterShareGroupOffsets, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, int64, nullable_string, string, uuid


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: int = int32()
    start_offset: int = int64()


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string()
    partitions: list[AlterShareGroupOffsetsRequestPartition] = array(AlterShareGroupOffsetsRequestPartition)


class AlterShareGroupOffsetsRequest(Struct):
    group_id: str = string()
    topics: list[AlterShareGroupOffsetsRequestTopic] = array(AlterShareGroupOffsetsRequestTopic)


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string()
    topic_id: bytes = uuid()
    partitions: list[AlterShareGroupOffsetsResponsePartition] = array(AlterShareGroupOffsetsResponsePartition)


class AlterShareGroupOffsetsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    responses: list[AlterShareGroupOffsetsResponseTopic] = array(AlterShareGroupOffsetsResponseTopic)


ALTER_SHARE_GROUP_OFFSETS = Api(
    91,
    "AlterShareGroupOffsets",
    (0, 0),
    flexible_from=0,
    request=AlterShareGroupOffsetsRequest,
    response=AlterShareGroupOffsetsResponse,
)
