"""PushTelemetry, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, boolean, byte_string, int8, int16, int32, uuid


class PushTelemetryRequest(Struct):
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    terminating: bool = boolean()
    compression_type: int = int8()
    metrics: bytes = byte_string()


class PushTelemetryResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()


PUSH_TELEMETRY = Api(
    72,
    "PushTelemetry",
    (0, 0),
    flexible_from=0,
    request=PushTelemetryRequest,
    response=PushTelemetryResponse,
)
