"""BrokerRegistration, versions 0 to 4."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.apis.endpoints import Feature, Listener
from penstock.wire.schema import (
    OWN_TAGS,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    nullable_string,
    string,
    uuid,
)


class BrokerRegistrationRequest(Struct):
    broker_id: int = int32()
    cluster_id: str = string()
    incarnation_id: bytes = uuid()
    listeners: list[Listener] = array(Listener)
    features: list[Feature] = array(Feature)
    rack: str | None = nullable_string()
    is_migrating_zk_broker: bool = boolean("1+")
    log_dirs: list[bytes] = array(uuid(), "2+")
    #: -1 unless the broker shut down cleanly (KIP-966)
    previous_broker_epoch: int = int64("3+", default=-1)
    #: the machine that the broker runs on, where that is not what its first listener says
    machine: str | None = nullable_string(tag=OWN_TAGS)
    #: that of the registration with the previous epoch; zero if the broker does not know it
    previous_incarnation_id: bytes = uuid(tag=OWN_TAGS + 1)


class BrokerRegistrationResponse(Struct):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    broker_epoch: int = int64(default=-1)


BROKER_REGISTRATION = Api(
    62,
    "BrokerRegistration",
    (0, 4),
    flexible_from=0,
    request=BrokerRegistrationRequest,
    response=BrokerRegistrationResponse,
)
