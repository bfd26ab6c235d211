"""DeleteTopics, versions 1 to 6."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, nullable_string, string, uuid


class DeleteTopicState(Struct):
    name: str | None = nullable_string()
    topic_id: bytes = uuid()


class DeleteTopicsRequest(Struct):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string(), "0-5")
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = nullable_string(nullable="6+", default="")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = nullable_string("5+")


class DeleteTopicsResponse(Struct):
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


DELETE_TOPICS = Api(
    20, "DeleteTopics", (1, 6), flexible_from=4, request=DeleteTopicsRequest, response=DeleteTopicsResponse
)
