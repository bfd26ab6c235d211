"""The gate of SASL listeners: whatever a mechanism raises is a failed authentication."""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.model.errors import ErrorCode, ProtocolError
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.sasl_gate import SaslGate, SaslServer
from penstock.security.principal import Session
from penstock.security.sasl import Identity, SaslFailure, Step, TokenRefused, Verification
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.messages import encode_request


class FakeConnection:
    """A connection whose timers run by hand."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.application: Any = None
        self.session = Session()
        self.closes = 0
        self.address = "10.0.0.1"
        self.closed = False

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((delay_s, callback))

    def close(self) -> None:
        self.closes += 1


class FailingExchange:
    message_max = 1024
    claimed = ""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def step(self, token: bytes) -> Step:
        raise self._error


def frame(api: Any, version: int, request: Any) -> memoryview:
    parts: list[Any] = encode_request(api, version, 7, "c", request)
    return memoryview(b"".join(parts))[4:]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SaslFailure("wrong password"), "wrong password"),
        (RecursionError("maximum depth"), "internal error: RecursionError"),
        (ValueError("hunter2"), "internal error: ValueError"),
    ],
)
def test_every_error_of_a_mechanism_is_counted_delayed_and_answered(error: Exception, reason: str) -> None:
    outcomes: list[tuple[str, str | None]] = []
    server = SaslServer(
        mechanisms={"OAUTHBEARER": lambda: FailingExchange(error)},
        wall_clock=lambda: 0.0,
        failure_delay_s=0.5,
        outcome=lambda connection, mechanism, reason: outcomes.append((mechanism, reason)),
    )
    application: Any = None
    fake = FakeConnection()
    connection = cast(Connection, fake)
    gate = SaslGate(server, application)
    gate.serve(connection, frame(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="OAUTHBEARER")))
    request = SaslAuthenticateRequest(auth_bytes=b"token")
    answer = gate.serve(connection, frame(SASL_AUTHENTICATE, 2, request))
    assert outcomes == [("OAUTHBEARER", reason)]
    assert isinstance(answer, Deferred)
    ((delay_s, end),) = fake.timers
    assert (delay_s, fake.closes) == (0.5, 0)
    end()
    assert fake.closes == 1
    parts: Any = answer.value
    sent = b"".join(parts)
    assert sent[9:11] == ErrorCode.SASL_AUTHENTICATION_FAILED.to_bytes(2, "big")
    assert b"hunter2" not in sent


class RecordingExchange:
    """Takes tokens, and has them verified by a function."""

    message_max = 2048
    claimed = ""

    def __init__(self, work: Callable[[], Identity]) -> None:
        self.tokens: list[bytes] = []
        self._work = work

    def step(self, token: bytes) -> Step | Verification:
        self.tokens.append(token)
        return Verification(self._work, self._finish)

    def _finish(self, outcome: Identity | TokenRefused) -> Step:
        if isinstance(outcome, TokenRefused):
            return Step(b"refused")
        return Step(b"", outcome)


def started(exchange: Any, **settings: Any) -> tuple[SaslGate, FakeConnection, list[str | None]]:
    outcomes: list[str | None] = []
    server = SaslServer(
        mechanisms={"OAUTHBEARER": lambda: exchange},
        wall_clock=lambda: 0.0,
        outcome=lambda connection, mechanism, reason: outcomes.append(reason),
        **settings,
    )
    application: Any = None
    gate, fake = SaslGate(server, application), FakeConnection()
    hello = frame(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="OAUTHBEARER"))
    gate.serve(cast(Connection, fake), hello)
    return gate, fake, outcomes


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_large_token_is_refused_without_a_look_at_it(version: int) -> None:
    """Neither the mechanism nor the decoder of requests sees it: a header may have tags without end."""
    exchange = RecordingExchange(lambda: Identity("bob"))
    gate, fake, outcomes = started(exchange)
    garbage = struct.pack(">hhi", SASL_AUTHENTICATE.key, version, 7) + b"\xff" * 20_000
    answer = gate.serve(cast(Connection, fake), memoryview(garbage))
    assert outcomes == ["a token of 20008 bytes, limit 10240"]
    assert not exchange.tokens
    fake.timers[0][1]()
    assert isinstance(answer, Deferred)
    parts: Any = answer.value
    assert b"".join(parts)[4:8] == (7).to_bytes(4, "big")


@pytest.mark.parametrize("key", [18, 17, 3])
def test_a_large_request_before_authentication_ends_the_connection(key: int) -> None:
    gate, fake, _ = started(RecordingExchange(lambda: Identity("bob")))
    with pytest.raises(ProtocolError, match="bytes before authentication"):
        gate.serve(cast(Connection, fake), memoryview(struct.pack(">hhi", key, 3, 7) + b"\x01" * 20_000))


def test_a_large_token_before_the_handshake_ends_the_connection() -> None:
    """Its header would be decoded: half a megabyte of tagged fields took 50 ms."""
    application: Any = None
    gate = SaslGate(SaslServer(mechanisms={}, wall_clock=lambda: 0.0), application)
    frame = struct.pack(">hhi", SASL_AUTHENTICATE.key, 2, 7) + b"\x01" * 20_000
    with pytest.raises(ProtocolError, match="bytes before authentication"):
        gate.serve(cast(Connection, FakeConnection()), memoryview(frame))


@pytest.mark.parametrize(
    ("error", "reason"), [(ValueError("hunter2"), "internal error: ValueError"), (None, None)]
)
def test_tokens_are_verified_in_turn_and_the_client_waits(
    error: Exception | None, reason: str | None
) -> None:
    async def main() -> None:
        loop_thread, ran_in = threading.get_ident(), list[int]()
        verified = asyncio.Event()

        def work() -> Identity:
            ran_in.append(threading.get_ident())
            if error is not None:
                raise error
            raise TokenRefused("expired")

        async def in_turn(address: str, work: Callable[[], Any]) -> Any:
            assert address == "10.0.0.1"
            try:
                return await asyncio.to_thread(work)
            finally:
                asyncio.get_running_loop().call_later(0.01, verified.set)

        gate, fake, outcomes = started(RecordingExchange(work), in_turn=in_turn)
        connection = cast(Connection, fake)
        request = frame(SASL_AUTHENTICATE, 2, SaslAuthenticateRequest(auth_bytes=b"token"))
        answer = gate.serve(connection, request)
        assert isinstance(answer, Deferred) and not answer.done
        with pytest.raises(ProtocolError, match="before the answer"):
            gate.serve(connection, request)
        await verified.wait()
        for _, end in fake.timers:
            end()
        assert outcomes == ([] if reason is None else [reason])
        assert ran_in and ran_in[0] != loop_thread
        parts: Any = answer.value
        assert (b"refused" in b"".join(parts)) is (error is None)

    asyncio.run(main())
