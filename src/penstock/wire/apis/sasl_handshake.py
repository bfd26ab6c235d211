"""SaslHandshake, versions 0 and 1. After version 0, tokens are sent without request headers."""

from __future__ import annotations

from penstock.wire.api import Api
from penstock.wire.schema import Struct, array, int16, string


class SaslHandshakeRequest(Struct):
    mechanism: str = string()


class SaslHandshakeResponse(Struct):
    error_code: int = int16()
    mechanisms: list[str] = array(string())


SASL_HANDSHAKE = Api(
    17, "SaslHandshake", (0, 1), request=SaslHandshakeRequest, response=SaslHandshakeResponse
)
