"""ExpireDelegationToken, versions 1 and 2."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, byte_string, int16, int32, int64


class ExpireDelegationTokenRequest(Struct):
    hmac: bytes = byte_string()
    expiry_time_period_ms: int = int64()


class ExpireDelegationTokenResponse(Struct):
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


EXPIRE_DELEGATION_TOKEN = Api(
    40,
    "ExpireDelegationToken",
    (1, 2),
    flexible_from=2,
    request=ExpireDelegationTokenRequest,
    response=ExpireDelegationTokenResponse,
)
