"""SaslAuthenticate, versions 0 to 2. From version 1 on, the response has the lifetime of the session."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, byte_string, int16, int64, nullable_string


class SaslAuthenticateRequest(Struct):
    auth_bytes: bytes = byte_string()


class SaslAuthenticateResponse(Struct):
    error_code: int = int16()
    error_message: str | None = nullable_string()
    auth_bytes: bytes = byte_string()
    session_lifetime_ms: int = int64("1+")


SASL_AUTHENTICATE = Api(
    36,
    "SaslAuthenticate",
    (0, 2),
    flexible_from=2,
    request=SaslAuthenticateRequest,
    response=SaslAuthenticateResponse,
)
