"""A client of a SASL listener that sends any request at any time."""

from __future__ import annotations

import socket
import ssl
import struct
from typing import Any, Self

from penstock.wire.api import Api
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.schema import Struct
from tests.secured import HOST


class Speaker:
    """A client that sends any request at any time."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        """With `context`, over TLS."""
        self.socket = socket.create_connection((HOST, port), timeout=60)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=HOST)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self.socket.close()

    def send_raw(self, content: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(content)) + content)

    def receive_raw(self) -> bytes | None:
        try:
            head = self._file.read(4)
            return self._file.read(struct.unpack(">i", head)[0]) if len(head) == 4 else None
        except ConnectionResetError:
            return None

    def call(self, api: Api[Any, Any], request: Struct, version: int | None = None) -> Any:
        """The response; None if the broker closes the connection instead."""
        version = api.max_version if version is None else version
        self.socket.sendall(b"".join(encode_request(api, version, 7, "test", request)))  # type: ignore[arg-type]
        frame = self.receive_raw()
        return None if frame is None else decode_response(api, version, memoryview(frame))

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> int | None:
        answer = self.call(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism), version)
        return None if answer is None else answer.error_code

    def token(self, token: bytes) -> tuple[int, str | None] | None:
        answer = self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
        return None if answer is None else (answer.error_code, answer.error_message)
