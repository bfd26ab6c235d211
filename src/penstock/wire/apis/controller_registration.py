"""ControllerRegistration, version 0 (KIP-919)."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import Feature, Listener
from penstock.wire.schema import Struct, array, boolean, int16, int32, nullable_string, uuid


class ControllerRegistrationRequest(Struct):
    controller_id: int = int32()
    incarnation_id: bytes = uuid()
    zk_migration_ready: bool = boolean()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)


class ControllerRegistrationResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()


CONTROLLER_REGISTRATION = Api(
    70,
    "ControllerRegistration",
    (0, 0),
    flexible_from=0,
    request=ControllerRegistrationRequest,
    response=ControllerRegistrationResponse,
)
