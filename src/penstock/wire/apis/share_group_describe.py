"""ShareGroupDescribe, version 1."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, boolean, int16, int32, nullable_string, string, struct, uuid


class ShareGroupDescribeRequest(Struct):
    group_ids: list[str] = array(string())
    include_authorized_operations: bool = boolean()


class TopicPartitions(Struct):
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = array(int32())


class Assignment(Struct):
    topic_partitions: list[TopicPartitions] = array(TopicPartitions)


class Member(Struct):
    member_id: str = string()
    rack_id: str | None = nullable_string()
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = array(string())
    assignment: Assignment = struct(Assignment)


class DescribedGroup(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[Member] = array(Member)
    authorized_operations: int = int32(default=-2147483648)


class ShareGroupDescribeResponse(Struct):
    throttle_time_ms: int = int32()
    groups: list[DescribedGroup] = array(DescribedGroup)


SHARE_GROUP_DESCRIBE = Api(
    77,
    "ShareGroupDescribe",
    (1, 1),
    flexible_from=0,
    request=ShareGroupDescribeRequest,
    response=ShareGroupDescribeResponse,
)
