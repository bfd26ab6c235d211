"""The client side of a connection, without the connection: bytes in, responses out.

Every client drives this code over its own transport: replica fetchers, the quorum, forwarded requests,
simulated clients, the Spark source, tests.

    conversation = Conversation("me")
    send(conversation.handshake())            # nothing else before it is ready
    while not conversation.is_ready:
        conversation.received(receive_into(conversation.get_buffer()))
        send(conversation.handshake())        # it may take a second round
    correlation_id, parts = conversation.request(METADATA, MetadataRequest())

A broker responds to the requests of a connection in their order, so the conversation keeps a queue of pending
requests. A response out of order or without a request, and invalid bytes, end the conversation. Record
batches in a response are views of the received bytes.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

from penstock.model.errors import ErrorCode, ProtocolError, UnsupportedVersion
from penstock.ports import Buffer
from penstock.security.mechanism import Login
from penstock.security.sasl_client import KeyNeeded, LoginFailed, SaslClient
from penstock.version import VERSION
from penstock.wire.api import Api, RequestT
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.compiler import Part
from penstock.wire.frames import MAX_FRAME_BYTES, FrameReader
from penstock.wire.messages import (
    decode_response,
    encode_request_header,
    request_writer,
    response_body_offset,
    response_correlation_id,
    response_reader,
)

__all__ = ["MAX_IN_FLIGHT", "Conversation", "LoginRejected", "Response", "common_version"]

#: The number of requests that a Penstock broker accepts before it stops reading.
MAX_IN_FLIGHT: Final = 256
_INT32_MAX: Final = 0x7FFFFFFF
_ERROR_CODE: Final = struct.Struct(">h")
_LOGIN_REJECTED: Final = ErrorCode.SASL_AUTHENTICATION_FAILED
Writer: TypeAlias = Callable[[int, Any], list[Part]]
Reader: TypeAlias = Callable[[memoryview], Any]


class LoginRejected(ProtocolError):
    """The broker has refused the user, the password or the token."""


class Response(NamedTuple):
    """A response and its request; `message` is a view of the body if the caller wanted the raw bytes."""

    correlation_id: int
    message: Any


class Conversation:
    """Agrees on versions, numbers requests, and reads the answers to them."""

    __slots__ = (
        "_authenticating",
        "_awaited",
        "_client_id",
        "_frames",
        "_handshake_id",
        "_handshake_version",
        "_is_over",
        "_last_correlation_id",
        "_login",
        "_max_in_flight",
        "_offered",
        "_sasl",
        "_spoken",
        "_unanswered",
        "key_needed",
        "peer",
        "session_lifetime_s",
    )

    def __init__(
        self,
        client_id: str | None,
        *,
        max_response_bytes: int = MAX_FRAME_BYTES,
        max_in_flight: int = MAX_IN_FLIGHT,
        login: Login | None = None,
    ) -> None:
        """With `login`, the handshake includes the authentication by SASL."""
        #: the APIs that the peer serves, once it has named them
        self.peer: ApiVersionsResponse | None = None
        self._client_id = client_id
        self._frames = FrameReader(max_response_bytes)
        self._max_in_flight = max_in_flight
        self._last_correlation_id = 0
        self._awaited: deque[tuple[int, Reader]] = deque()
        #: per API, after its first request: the version, the encoder of requests and the decoder of responses
        self._spoken: dict[Api[Any, Any], tuple[int, Writer, Reader]] = {}
        self._handshake_id: int | None = None
        self._handshake_version = API_VERSIONS.max_version
        self._is_over = False
        self._login = login
        self._sasl: SaslClient | None = None
        #: the versions of the peer while it authenticates us
        self._offered: ApiVersionsResponse | None = None
        #: the next request of the authentication, once the response before it has come
        self._authenticating: tuple[Api[Any, Any], Any] | None = None
        #: computes a key that the authentication needs; None unless it waits for `resume`
        self.key_needed: Callable[[], object] | None = None
        #: the response that the authentication continues with after `resume`
        self._unanswered: Any = None
        #: the session ends after this time unless the client authenticates again; 0 if it does not end
        self.session_lifetime_s = 0.0

    @property
    def in_flight(self) -> int:
        """How many requests await their answers."""
        return len(self._awaited)

    @property
    def has_room(self) -> bool:
        """Whether one more request may be sent."""
        return len(self._awaited) < self._max_in_flight and self._sasl is None

    @property
    def is_authenticated(self) -> bool:
        """Whether no authentication is in progress."""
        return self._sasl is None

    @property
    def is_ready(self) -> bool:
        """Returns true once the peer has named the APIs that it serves."""
        return self.peer is not None

    # -- requests --------------------------------------------------------------------------------------

    def handshake(self) -> list[Part]:
        """The next bytes of the handshake; empty while a response is pending, and once it is done."""
        if self._authenticating is not None and self._handshake_id is None:
            api, message = self._authenticating
            self._authenticating = None
            self._handshake_id, parts = self.request(
                api, message, version=common_version(api, self._versions)
            )
            return parts
        if self.peer is not None or self._handshake_id is not None or self._sasl is not None:
            return []
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version=VERSION)
        self._handshake_id, parts = self.request(API_VERSIONS, request, version=self._handshake_version)
        return parts

    @property
    def _versions(self) -> ApiVersionsResponse:
        found = self.peer or self._offered
        assert found is not None
        return found

    def authenticate(self) -> None:
        """Start the authentication, or another one (KIP-368); `handshake` has its requests.

        No other request may be sent until it is done: `has_room` is false.
        """
        assert self._login is not None
        self._sasl = self._login.begin()
        self._authenticating = SASL_HANDSHAKE, SaslHandshakeRequest(mechanism=self._login.mechanism.name)

    def resume(self) -> None:
        """Go on with the authentication after `key_needed` was called, by any thread."""
        assert self.key_needed is not None
        response, self.key_needed, self._unanswered = self._unanswered, None, None
        self._authenticated(response)

    def _authenticated(self, response: Any) -> None:
        """Go on with the authentication after a response."""
        sasl, login = self._sasl, self._login
        assert sasl is not None and login is not None
        if response.error_code:
            text = getattr(response, "error_message", None) or ", ".join(getattr(response, "mechanisms", ()))
            kind = LoginRejected if response.error_code == _LOGIN_REJECTED else ProtocolError
            name, code = login.mechanism.name, response.error_code
            raise kind(f"SASL {name} of {login.user!r} was refused, error {code}: {text}")
        try:
            if isinstance(response, SaslHandshakeResponse):
                token: bytes | None = sasl.start()
            else:
                token = sasl.step(bytes(response.auth_bytes))
        except KeyNeeded as e:
            self.key_needed, self._unanswered = e.compute, response
            return
        except LoginFailed as e:
            raise ProtocolError(f"SASL {login.mechanism.name}: {e}") from e
        if token is not None:
            self._authenticating = SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token)
            return
        self.session_lifetime_s = response.session_lifetime_ms / 1000
        self._sasl = None
        self.peer, self._offered = self._versions, None

    def version(self, api: Api[Any, Any]) -> int:
        """The version for requests of `api`; UnsupportedVersion if there is none. Only once it `is_ready`."""
        return self._speak(api)[0]

    def _speak(self, api: Api[Any, Any]) -> tuple[int, Writer, Reader]:
        spoken = self._spoken.get(api)
        if spoken is None:
            assert self.peer is not None, "versions are known after the handshake"
            spoken = self._spoken[api] = self._codecs(api, common_version(api, self.peer))
        return spoken

    def _codecs(self, api: Api[Any, Any], version: int) -> tuple[int, Writer, Reader]:
        return version, request_writer(api, version, self._client_id), response_reader(api, version)

    def request(
        self,
        api: Api[RequestT, Any],
        message: RequestT,
        *,
        version: int | None = None,
        answered: bool = True,
    ) -> tuple[int, list[Part]]:
        """A correlation id and what to send; not `answered` only for Produce with acks=0."""
        if version is None:
            _, write, read = self._spoken.get(api) or self._speak(api)
        else:
            _, write, read = self._codecs(api, version)
        correlation_id = self._number()
        parts = write(correlation_id, message)
        if answered:
            self._awaited.append((correlation_id, read))
        return correlation_id, parts

    def repeat(self, api: Api[Any, Any]) -> int | None:
        """The correlation id of a request that the caller writes.

        None if no request may be sent now, or before the first request of `api`: its version is still
        unknown.
        """
        spoken = self._spoken.get(api)
        if spoken is None or not self.has_room:
            return None
        correlation_id = self._number()
        self._awaited.append((correlation_id, spoken[2]))
        return correlation_id

    def forward(self, api: Api[Any, Any], version: int, body: Buffer) -> tuple[int, list[Part]]:
        """Like `request`, for a request whose body is encoded; the response's body is returned undecoded."""
        correlation_id = self._number()
        head = encode_request_header(api, version, correlation_id, self._client_id, len(body))
        offset = partial(response_body_offset, api, version)
        self._awaited.append((correlation_id, lambda frame: frame[offset(frame) :]))
        return correlation_id, [head, body]

    def _number(self) -> int:
        assert len(self._awaited) < self._max_in_flight, "too many requests in flight"
        if self._is_over:
            self._check_not_over()
        number = self._last_correlation_id = self._last_correlation_id % _INT32_MAX + 1
        return number

    # -- listening ------------------------------------------------------------------------------------

    def get_buffer(self) -> memoryview:
        """Where the next bytes from the peer go; never empty."""
        return self._frames.get_buffer()

    def received(self, size: int) -> list[Response]:
        """The answers that `size` more bytes in the buffer complete, in the order of their requests."""
        if self._is_over:
            self._check_not_over()
        try:
            return self._answers(self._frames.received(size))
        except ProtocolError:
            self._is_over = True
            raise

    def receive(self, data: Buffer) -> list[Response]:
        """Like `received`, for bytes in a buffer of the caller."""
        self._check_not_over()
        try:
            return self._answers(self._frames.feed(data))
        except ProtocolError:
            self._is_over = True
            raise

    def _answers(self, frames: list[memoryview]) -> list[Response]:
        answers = []
        for frame in frames:
            correlation_id = response_correlation_id(frame)
            awaited, decode = self._awaited.popleft() if self._awaited else (None, None)
            if decode is None or awaited != correlation_id:
                raise ProtocolError(f"response {correlation_id} where {awaited} was awaited")
            if correlation_id == self._handshake_id:
                self._agree(frame, decode)
            else:
                answers.append(Response(correlation_id, decode(frame)))
        return answers

    def _agree(self, frame: memoryview, decode: Reader) -> None:
        """Take the response to a request of the handshake.

        Store the API versions of the peer, or send ApiVersions again in a version that it supports.

        A peer that does not know the requested version responds in version 0 (KIP-511), with its range.
        """
        if self._sasl is not None:
            self._handshake_id = None
            self._authenticated(decode(frame))
            return
        offset = response_body_offset(API_VERSIONS, 0, frame)
        code = _ERROR_CODE.unpack_from(frame, offset)[0] if len(frame) >= offset + _ERROR_CODE.size else 0
        if code == ErrorCode.UNSUPPORTED_VERSION and self._handshake_version > 0:
            theirs = decode_response(API_VERSIONS, 0, frame)
            self._handshake_version = _next_handshake_version(theirs, self._handshake_version)
            self._handshake_id = None
            return
        answer: ApiVersionsResponse = decode(frame)
        if answer.error_code:
            raise ProtocolError(f"the handshake was refused with error {answer.error_code}")
        self._handshake_id = None
        if self._login is not None:
            self._offered = answer
            self.authenticate()
        else:
            self.peer = answer

    def _check_not_over(self) -> None:
        if self._is_over:
            raise ProtocolError("the conversation is over")


def _next_handshake_version(theirs: ApiVersionsResponse, refused: int) -> int:
    """The version of ApiVersions after `refused`: the peer's newest, 0 if unknown."""
    try:
        return min(common_version(API_VERSIONS, theirs), refused - 1)
    except UnsupportedVersion:
        return 0


def common_version(api: Api[Any, Any], theirs: ApiVersionsResponse) -> int:
    """The highest version that we have tables for and a peer serves; UnsupportedVersion if there is none."""
    for served in theirs.api_keys:
        if served.api_key == api.key:
            version = min(api.max_version, served.max_version)
            if version >= max(api.min_supported, served.min_version):
                return version
            raise UnsupportedVersion(
                f"{api.name}: the peer serves {served.min_version} to {served.max_version}, "
                f"we speak {api.min_supported} to {api.max_version}"
            )
    raise UnsupportedVersion(f"the peer does not serve {api.name}")
