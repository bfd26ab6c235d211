"""One connection of the matrix, which sends anything at any time."""

from __future__ import annotations

import socket
import ssl
import struct
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import new as new_hash
from hashlib import pbkdf2_hmac
from hmac import digest
from types import TracebackType
from typing import Any, Final, Self

from differential.negative.credentials import HOST, PASSWORD, USER
from penstock.wire.api import Api
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.messages import decode_response, encode_request
from penstock.wire.schema import Struct

__all__ = ["Line", "Scram"]

_TIMEOUT_S: Final = 20.0
CLOSED: Final = "closed"


class Line:
    """A connection to a listener. Answers are error codes, or `closed`."""

    def __init__(self, port: int, context: ssl.SSLContext | None = None) -> None:
        self.socket: socket.socket = socket.create_connection((HOST, port), timeout=_TIMEOUT_S)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname=HOST)
        self._file = self.socket.makefile("rb")
        #: the text of the last error
        self.message: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self.socket.close()

    def send(self, content: bytes) -> None:
        """Send a frame."""
        self.socket.sendall(struct.pack(">i", len(content)) + content)

    def receive(self) -> bytes | None:
        """A frame; None if the broker closes the connection instead."""
        try:
            head = self._file.read(4)
            if len(head) < 4:
                return None
            size = struct.unpack(">i", head)[0]
            # A TLS alert looks like the length of a large frame.
            content = self._file.read(size)
            return content if len(content) == size else None
        except (ConnectionResetError, BrokenPipeError, ssl.SSLError):
            return None

    def call(self, api: Api[Any, Any], request: Struct, version: int | None = None) -> Any:
        """The response; None if the broker closes the connection instead."""
        version = api.max_version if version is None else version
        encoded = b"".join(encode_request(api, version, 7, "matrix", request))  # type: ignore[arg-type]
        try:
            self.socket.sendall(encoded)
        except OSError:
            return None
        frame = self.receive()
        return None if frame is None else decode_response(api, version, memoryview(frame))

    def error(self, api: Api[Any, Any], request: Struct, version: int | None = None) -> str:
        """The error of a response, and whether the connection is closed after it."""
        answer = self.call(api, request, version)
        if answer is None:
            return CLOSED
        self.message = getattr(answer, "error_message", None)
        return f"error {answer.error_code}" if answer.error_code else "served"

    def handshake(self, mechanism: str, version: int = 1) -> str:
        return self.error(SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, token: bytes) -> str:
        return self.error(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))

    def challenge(self, token: bytes) -> bytes | None:
        """The answer to a token; None if it is an error."""
        answer = self.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token))
        if answer is None or answer.error_code:
            self.message = None if answer is None else answer.error_message
            return None
        return bytes(answer.auth_bytes)

    def ends(self) -> bool:
        """Whether the broker closes the connection by itself."""
        self.socket.settimeout(2.0)
        try:
            return self.receive() is None
        except TimeoutError:
            return False


class Scram:
    """An exchange of SCRAM whose messages can be changed on their way."""

    def __init__(self, mechanism: str, user: str = USER, password: str = PASSWORD, authzid: str = "") -> None:
        self._hash = mechanism.removeprefix("SCRAM-").replace("-", "").lower()
        self._header = f"n,{authzid and f'a={authzid}'},"
        self._bare = f"n={user},r=clientnonce"
        self._password = password.encode()

    def first(self) -> bytes:
        return (self._header + self._bare).encode()

    def last(self, challenge: bytes, change: Callable[[str], str] = lambda text: text) -> bytes:
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = pbkdf2_hmac(self._hash, self._password, b64decode(fields["s"]), int(fields["i"]))
        binding = b64encode(self._header.encode()).decode()
        without = change(f"c={binding},r={fields['r']}")
        signed = f"{self._bare},{challenge.decode()},{without}".encode()
        client = digest(salted, b"Client Key", self._hash)
        stored = new_hash(self._hash, client).digest()
        signature = digest(stored, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client, signature, strict=True))
        return f"{without},p={b64encode(proof).decode()}".encode()
