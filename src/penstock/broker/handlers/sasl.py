"""SaslHandshake and SaslAuthenticate on connections that need no authentication, or have passed it."""

from __future__ import annotations

from penstock.broker.base.context import Context
from penstock.model.errors import ErrorCode
from penstock.wire.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

__all__ = ["sasl_authenticate", "sasl_handshake"]

_TEXT = "The connection is authenticated already, or its listener does not use SASL"


def sasl_handshake(context: Context, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


def sasl_authenticate(context: Context, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=_TEXT)
