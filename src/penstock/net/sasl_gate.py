"""SASL on a server's connection: serves its frames until it is authenticated, and guards its session.

The gate is the application of a connection of a SASL listener. Once the peer is authenticated, a session that
does not expire gets the application behind the gate directly, so that requests cost nothing more. A session
that expires keeps the gate in front, which accepts nothing but re-authentication after its end (KIP-368).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.net.application import Application
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.response_queue import Answer, Parts
from penstock.net.session_end import SessionEnd
from penstock.security.principal import USER, Principal
from penstock.security.sasl import Exchange, Identity, SaslFailure, Step, TokenRefused, Verification
from penstock.security.sasl_states import NEXT, Event, State
from penstock.wire.apis import APIS
from penstock.wire.apis.api_versions import API_VERSIONS
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateResponse
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeResponse
from penstock.wire.messages import RequestHeader, decode_request_header, encode_response

__all__ = ["SaslGate", "SaslServer"]

_LENGTH: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")
_FIXED_HEADER: Final = struct.Struct(">hhi")
#: bytes of a request before authentication that has no token, and of a header beside a token
_SMALL_REQUEST_MAX: Final = 16 << 10
_HEADER_MAX: Final = 8 << 10
#: tokens of one exchange; SCRAM needs two
_TOKENS_MAX: Final = 8
#: the shortest time between two authentications of a connection
_REAUTHENTICATION_S: Final = 1.0
#: Kafka's text, which does not say whether the user exists
_FAILED: Final = "Authentication failed during authentication due to invalid credentials with SASL mechanism"
_UNSUPPORTED: Final = _API_KEY.pack(ErrorCode.UNSUPPORTED_VERSION)


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslServer:
    """SASL of one listener."""

    #: a new exchange by mechanism
    mechanisms: Mapping[str, Callable[[], Exchange]]
    #: seconds since the epoch, for the expiry of tokens
    wall_clock: Callable[[], float]
    max_receive_bytes: int = 512 << 10
    #: the longest session, 0 for no limit
    max_session_s: float = 0.0
    failure_delay_s: float = 0.1
    #: runs long work of a client's address in another thread
    in_turn: Callable[[str, Callable[[], Any]], Awaitable[Any]] | None = None
    #: notes who authenticates, by client id, and returns why it is refused, or None
    admits: Callable[[Connection, str | None], str | None] = lambda connection, client_id: None
    #: called with the connection, the mechanism, and the reason of a failure or None after a success
    outcome: Callable[[Connection, str, str | None], None] = lambda connection, mechanism, reason: None


class SaslGate:
    """The application of one connection of a SASL listener."""

    __slots__ = (
        "_application",
        "_authenticated_at",
        "_end",
        "_exchange",
        "_is_verifying",
        "_mechanism",
        "_server",
        "_state",
        "_tokens",
    )

    def __init__(self, server: SaslServer, application: Application[Connection]) -> None:
        self._server = server
        self._application = application
        self._state = State.START
        self._mechanism = ""
        self._exchange: Exchange | None = None
        self._tokens = 0
        self._authenticated_at = 0.0
        #: whether a token is being verified; the peer has to wait for the answer
        self._is_verifying = False
        #: None while the session does not expire
        self._end: SessionEnd | None = None

    def serve(self, connection: Connection, frame: memoryview) -> Answer:
        if self._state is State.DONE:
            return self._serve_session(connection, frame)
        if self._is_verifying:
            raise ProtocolError("a request before the answer to SaslAuthenticate")
        too_large = self._too_large(frame)
        if too_large is not None:
            return self._failed(connection, too_large, _shortened_header(frame))
        if self._state is State.RAW:
            self._advance(Event.RAW_TOKEN)
            return self._take_token(connection, bytes(frame), None)
        header = decode_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == SASL_HANDSHAKE.key and SASL_HANDSHAKE.supports(version):
            return self._serve_handshake(connection, frame, header)
        if key == SASL_AUTHENTICATE.key and SASL_AUTHENTICATE.supports(version):
            if (self._state, Event.AUTHENTICATE) not in NEXT:
                raise ProtocolError("SaslAuthenticate before SaslHandshake")
            request = SASL_AUTHENTICATE.request_decoder(version)(frame, header.body_offset)
            return self._take_token(connection, bytes(request.auth_bytes), header)
        if key == API_VERSIONS.key and (self._state, Event.API_VERSIONS) in NEXT:
            return self._serve_versions(connection, frame)
        return self._refuse(connection, header)

    def connection_lost(self, connection: Connection) -> None:
        self._application.connection_lost(connection)

    # -- requests -------------------------------------------------------------------------------------

    def _serve_versions(self, connection: Connection, frame: memoryview) -> Answer:
        answer = self._application.serve(connection, frame)
        # A client whose version was not supported sends ApiVersions once more (KIP-511).
        is_retried = isinstance(answer, list) and bytes(answer[0][8:10]) == _UNSUPPORTED
        if not is_retried:
            self._advance(Event.API_VERSIONS)
        return answer

    def _serve_handshake(self, connection: Connection, frame: memoryview, header: RequestHeader) -> Answer:
        version = header.api_version
        event = Event.HANDSHAKE if version else Event.HANDSHAKE_RAW
        if (self._state, event) not in NEXT:
            return self._refuse(connection, header)
        request = SASL_HANDSHAKE.request_decoder(version)(frame, header.body_offset)
        refused = self._server.admits(connection, header.client_id)
        if refused is not None:
            return self._failed(connection, refused, header)
        known = list(self._server.mechanisms)
        code = ErrorCode.NONE
        if request.mechanism not in self._server.mechanisms:
            code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        elif self._authenticated_at and request.mechanism != self._mechanism:
            return self._failed(connection, "another mechanism than before", header)
        else:
            self._advance(event)
            self._mechanism = request.mechanism
            self._exchange = self._server.mechanisms[request.mechanism]()
            self._tokens = 0
        response = SaslHandshakeResponse(error_code=code, mechanisms=known)
        parts = encode_response(SASL_HANDSHAKE, version, header.correlation_id, response)
        if code:
            # Like Kafka: the client learns the mechanisms and has to connect again.
            return self._close_after(connection, parts, f"unsupported mechanism {request.mechanism[:64]!r}")
        return parts

    def _too_large(self, frame: memoryview) -> str | None:
        """Why a request is too large to be looked at; ProtocolError if its answer would make no sense.

        Why: a header may have as many tagged fields as there is room, and each costs time.
        """
        exchange = self._exchange
        is_token = self._state is State.RAW or _api_key(frame) == SASL_AUTHENTICATE.key
        if exchange is not None and is_token:
            most = exchange.message_max + (0 if self._state is State.RAW else _HEADER_MAX)
            return None if len(frame) <= most else f"a token of {len(frame)} bytes, limit {most}"
        if len(frame) > _SMALL_REQUEST_MAX:
            raise ProtocolError(f"a request of {len(frame)} bytes before authentication")
        return None

    def _take_token(self, connection: Connection, token: bytes, header: RequestHeader | None) -> Answer:
        assert self._exchange is not None
        self._tokens += 1
        try:
            if self._tokens > _TOKENS_MAX:
                raise SaslFailure("too many tokens")
            step = self._exchange.step(token)
        except Exception as e:  # noqa: BLE001 - a token must not escape the count of failures, or their delay
            return self._failed(connection, _reason(e), header)
        if isinstance(step, Verification):
            return self._verified(connection, step, header)
        return self._stepped(connection, step, header)

    def _verified(
        self, connection: Connection, verification: Verification, header: RequestHeader | None
    ) -> Answer:
        """The answer to a token once it is verified, in another thread if the server has one."""
        if self._server.in_turn is None:
            try:
                outcome: Identity | TokenRefused = verification.work()
            except TokenRefused as e:
                outcome = e
            return self._finished(connection, verification, outcome, header)
        answer: Deferred[Parts | None] = Deferred()
        self._is_verifying = True

        def done(work: asyncio.Future[Any]) -> None:
            self._is_verifying = False
            error = None if work.cancelled() else work.exception()
            if connection.closed or work.cancelled():
                return
            found = error if error is not None else work.result()
            parts = self._finished(connection, verification, found, header)
            if isinstance(parts, Deferred):
                parts.then(answer.resolve)
            else:
                answer.resolve(parts)

        work = asyncio.ensure_future(self._server.in_turn(connection.address, verification.work))
        work.add_done_callback(done)
        return answer

    def _finished(
        self, connection: Connection, verification: Verification, outcome: Any, header: RequestHeader | None
    ) -> Answer:
        try:
            if isinstance(outcome, BaseException) and not isinstance(outcome, TokenRefused):
                raise outcome
            return self._stepped(connection, verification.finish(outcome), header)
        except Exception as e:  # noqa: BLE001 - as in `_take_token`
            return self._failed(connection, _reason(e), header)

    def _stepped(self, connection: Connection, step: Step, header: RequestHeader | None) -> Answer:
        lifetime_ms = 0
        if step.identity is not None:
            reason = self._refusal(connection, step.identity)
            if reason is not None:
                return self._failed(connection, reason, header)
            lifetime_ms = self._authenticated(connection, step.identity)
        if header is None:
            return [_LENGTH.pack(len(step.reply)) + step.reply]
        response = SaslAuthenticateResponse(auth_bytes=step.reply, session_lifetime_ms=lifetime_ms)
        return encode_response(SASL_AUTHENTICATE, header.api_version, header.correlation_id, response)

    def _serve_session(self, connection: Connection, frame: memoryview) -> Answer:
        """A request of an authenticated connection whose session expires."""
        session, now = connection.session, connection.loop_time()
        if _api_key(frame) == SASL_HANDSHAKE.key:
            if now - self._authenticated_at < _REAUTHENTICATION_S:
                raise ProtocolError("authenticated again within a second")
            return self._serve_handshake(connection, frame, decode_request_header(frame))
        if session.expires_at is not None and now >= session.expires_at:
            raise ProtocolError("the session has expired, and the client has not authenticated again")
        answer = self._application.serve(connection, frame)
        if isinstance(answer, Deferred) and not answer.done and self._end is not None:
            self._end.guard(answer, frame)
        return answer

    # -- outcomes -------------------------------------------------------------------------------------

    def _refusal(self, connection: Connection, identity: Identity) -> str | None:
        """Why an identity is refused although it was proved."""
        if identity.expires_at_s is not None and identity.expires_at_s <= self._server.wall_clock():
            return "the token has expired"
        if self._authenticated_at and connection.session.principal.name != identity.name:
            return "another principal than before"
        return None

    def _authenticated(self, connection: Connection, identity: Identity) -> int:
        """Start the session; its lifetime in milliseconds, 0 for no limit."""
        server, now = self._server, connection.loop_time()
        limits = [server.max_session_s] if server.max_session_s else []
        if identity.expires_at_s is not None:
            limits.append(identity.expires_at_s - server.wall_clock())
        lifetime_s = min(limits) if limits else None
        connection.session = replace(
            connection.session,
            principal=Principal(USER, identity.name),
            expires_at=None if lifetime_s is None else now + lifetime_s,
            mechanism=self._mechanism,
            groups=identity.groups,
            token_id=identity.token_id,
            authentications=connection.session.authentications + 1,
        )
        self._advance(Event.COMPLETE)
        self._exchange = None
        self._authenticated_at = now
        connection.authenticated(self if lifetime_s is not None else self._application)
        if lifetime_s is not None:
            self._end = self._end or SessionEnd(connection)
            self._end.begins(connection.session)
        server.outcome(connection, self._mechanism, None)
        return 0 if lifetime_s is None else max(1, int(lifetime_s * 1000))

    def _failed(self, connection: Connection, reason: str, header: RequestHeader | None) -> Answer:
        parts: Parts | None = None
        if header is not None and header.api_key == SASL_AUTHENTICATE.key:
            text = f"{_FAILED} {self._mechanism}"
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=text
            )
            parts = encode_response(SASL_AUTHENTICATE, header.api_version, header.correlation_id, response)
        return self._close_after(connection, parts, reason)

    def _refuse(self, connection: Connection, header: RequestHeader) -> Answer:
        """A request that is illegal in this state: error 34 while authenticating, then close."""
        api = APIS.get(header.api_key)
        name = api.name if api is not None else f"API {header.api_key}"
        reason = f"{name} before authentication"
        if self._state is not State.TOKENS or api is None or not api.supports(header.api_version):
            raise ProtocolError(reason)
        response: Any = api.response()
        if not hasattr(response, "error_code"):
            raise ProtocolError(reason)
        response.error_code = int(ErrorCode.ILLEGAL_SASL_STATE)
        parts = encode_response(api, header.api_version, header.correlation_id, response)
        return self._close_after(connection, parts, reason)

    def _close_after(self, connection: Connection, parts: Parts | None, reason: str) -> Answer:
        """Answer and close after a delay, which slows down guessing; nothing more is served until then."""
        if self._exchange is not None:
            connection.session = replace(connection.session, claimed=self._exchange.claimed)
        self._server.outcome(connection, self._mechanism, reason)
        connection.application = _Refused(self._application)
        answer: Deferred[Parts | None] = Deferred()

        def end() -> None:
            answer.resolve(parts)
            connection.close()

        connection.call_later(self._server.failure_delay_s, end)
        return answer

    def _advance(self, event: Event) -> None:
        self._state = NEXT[self._state, event]


def _reason(error: Exception) -> str:
    """The reason of a failure, for the log. Not the text of a bug, which may have a part of the token."""
    return str(error) if isinstance(error, SaslFailure) else f"internal error: {type(error).__name__}"


def _api_key(frame: memoryview) -> int:
    return int(_API_KEY.unpack_from(frame)[0]) if len(frame) >= _API_KEY.size else -1


def _shortened_header(frame: memoryview) -> RequestHeader | None:
    """The header of a SaslAuthenticate request without its parts of any length; None for another request."""
    if _api_key(frame) != SASL_AUTHENTICATE.key or len(frame) < _FIXED_HEADER.size:
        return None
    key, version, correlation_id = _FIXED_HEADER.unpack_from(frame)
    if not SASL_AUTHENTICATE.supports(version):
        return None
    return RequestHeader(key, version, correlation_id, None, _FIXED_HEADER.size)


class _Refused:
    """The application of a connection that is about to be closed."""

    def __init__(self, application: Application[Connection]) -> None:
        self._application = application

    def serve(self, connection: Connection, frame: memoryview) -> Answer:
        return None

    def connection_lost(self, connection: Connection) -> None:
        self._application.connection_lost(connection)
