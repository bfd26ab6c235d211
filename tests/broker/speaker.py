"""A client of a SASL listener that sends any request at any time."""

from __future__ import annotations

import ssl
import struct
from typing import Any

from lab.raw_client import FrameClient
from penstock.wire.api import Api
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.schema import Struct
from tests.secured import HOST


class Speaker(FrameClient):
    """A client that sends any request at any time."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        """With `context`, over TLS."""
        super().__init__((HOST, port), 60, context)

    def send_raw(self, content: bytes) -> None:
        self.send(struct.pack(">i", len(content)) + content)

    def receive_raw(self) -> bytes | None:
        """The next frame; None if the broker closes the connection instead."""
        try:
            return self.receive()
        except ConnectionResetError:
            return None

    def call(self, api: Api[Any, Any], request: Struct, version: int | None = None) -> Any:
        """The response; None if the broker closes the connection instead."""
        version = api.max_version if version is None else version
        self.send(b"".join(encode_request(api, version, 7, "test", request)))  # type: ignore[arg-type]
        frame = self.receive_raw()
        return None if frame is None else decode_response(api, version, memoryview(frame))

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> int | None:
        answer = self.call(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism), version)
        return None if answer is None else answer.error_code

    def token(self, token: bytes) -> tuple[int, str | None] | None:
        answer = self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
        return None if answer is None else (answer.error_code, answer.error_message)
