"""GetTelemetrySubscriptions, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, boolean, int8, int16, int32, string, uuid


class GetTelemetrySubscriptionsRequest(Struct):
    client_instance_id: bytes = uuid()


class GetTelemetrySubscriptionsResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    client_instance_id: bytes = uuid()
    subscription_id: int = int32()
    accepted_compression_types: list[int] = array(int8())
    push_interval_ms: int = int32()
    telemetry_max_bytes: int = int32()
    delta_temporality: bool = boolean()
    requested_metrics: list[str] = array(string())


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    71,
    "GetTelemetrySubscriptions",
    (0, 0),
    flexible_from=0,
    request=GetTelemetrySubscriptionsRequest,
    response=GetTelemetrySubscriptionsResponse,
)
