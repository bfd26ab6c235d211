"""JoinGroup, versions 0 to 9."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, boolean, byte_string, int16, int32, nullable_string, string


class JoinGroupRequestProtocol(Struct):
    name: str = string()
    metadata: bytes = byte_string()


class JoinGroupRequest(Struct):
    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = nullable_string("5+")
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = nullable_string("8+")


class JoinGroupResponseMember(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string("5+")
    metadata: bytes = byte_string()


class JoinGroupResponse(Struct):
    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = nullable_string("7+")
    protocol_name: str | None = nullable_string(nullable="7+", default="")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


JOIN_GROUP = Api(
    11, "JoinGroup", (0, 9), flexible_from=6, request=JoinGroupRequest, response=JoinGroupResponse
)
