"""UnregisterBroker, version 0."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, int16, int32, nullable_string


class UnregisterBrokerRequest(Struct):
    broker_id: int = int32()


class UnregisterBrokerResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


UNREGISTER_BROKER = Api(
    64,
    "UnregisterBroker",
    (0, 0),
    flexible_from=0,
    request=UnregisterBrokerRequest,
    response=UnregisterBrokerResponse,
)
