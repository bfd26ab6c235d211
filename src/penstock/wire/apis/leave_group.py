"""LeaveGroup, versions 0 to 5."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, int32, nullable_string, string


class MemberIdentity(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string()
    reason: str | None = nullable_string("5+")


class LeaveGroupRequest(Struct):
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


class MemberResponse(Struct):
    member_id: str = string()
    group_instance_id: str | None = nullable_string()
    error_code: int = int16()


class LeaveGroupResponse(Struct):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")


LEAVE_GROUP = Api(
    13, "LeaveGroup", (0, 5), flexible_from=4, request=LeaveGroupRequest, response=LeaveGroupResponse
)
