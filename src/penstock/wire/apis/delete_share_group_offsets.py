"""DeleteShareGroupOffsets, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, nullable_string, string, uuid


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: str = string()


class DeleteShareGroupOffsetsRequest(Struct):
    group_id: str = string()
    topics: list[DeleteShareGroupOffsetsRequestTopic] = array(DeleteShareGroupOffsetsRequestTopic)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: str = string()
    topic_id: bytes = uuid()
    error_code: int = int16()
    error_message: str | None = nullable_string()


class DeleteShareGroupOffsetsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    responses: list[DeleteShareGroupOffsetsResponseTopic] = array(DeleteShareGroupOffsetsResponseTopic)


DELETE_SHARE_GROUP_OFFSETS = Api(
    92,
    "DeleteShareGroupOffsets",
    (0, 0),
    flexible_from=0,
    request=DeleteShareGroupOffsetsRequest,
    response=DeleteShareGroupOffsetsResponse,
)
