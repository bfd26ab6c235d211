"""SyncGroup, versions 0 to 5."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, byte_string, int16, int32, nullable_string, string


class SyncGroupRequestAssignment(Struct):
    member_id: str = string()
    assignment: bytes = byte_string()


class SyncGroupRequest(Struct):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+")
    protocol_type: str | None = nullable_string("5+")
    protocol_name: str | None = nullable_string("5+")
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


class SyncGroupResponse(Struct):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = nullable_string("5+")
    protocol_name: str | None = nullable_string("5+")
    assignment: bytes = byte_string()


SYNC_GROUP = Api(
    14, "SyncGroup", (0, 5), flexible_from=4, request=SyncGroupRequest, response=SyncGroupResponse
)
