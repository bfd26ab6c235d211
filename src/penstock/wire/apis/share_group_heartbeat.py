"""ShareGroupHeartbeat, version 1."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import (
    Struct,
    array,
    int16,
    int32,
    nullable_array,
    nullable_string,
    nullable_struct,
    string,
    uuid,
)


class ShareGroupHeartbeatRequest(Struct):
    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    rack_id: str | None = nullable_string()
    subscribed_topic_names: list[str] | None = nullable_array(string())


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    partitions: list[int] = array(int32())


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class ShareGroupHeartbeatResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    member_id: str | None = nullable_string()
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: Assignment | None = nullable_struct(Assignment)


SHARE_GROUP_HEARTBEAT = Api(
    76,
    "ShareGroupHeartbeat",
    (1, 1),
    flexible_from=0,
    request=ShareGroupHeartbeatRequest,
    response=ShareGroupHeartbeatResponse,
)
