"""Heartbeat, versions 0 to 4."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, int16, int32, nullable_string, string


class HeartbeatRequest(Struct):
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = nullable_string("3+")


class HeartbeatResponse(Struct):
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


HEARTBEAT = Api(
    12, "Heartbeat", (0, 4), flexible_from=4, request=HeartbeatRequest, response=HeartbeatResponse
)
