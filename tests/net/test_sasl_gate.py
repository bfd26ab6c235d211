"""The gate of SASL listeners: whatever a mechanism raises is a failed authentication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from penstock.model.errors import ErrorCode
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.sasl_gate import SaslGate, SaslServer
from penstock.security.sasl import SaslFailure, Step
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.messages import encode_request


class FakeConnection:
    """A connection whose timers run by hand."""

    def __init__(self) -> None:
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.application: Any = None
        self.closes = 0

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        self.timers.append((delay_s, callback))

    def close(self) -> None:
        self.closes += 1


class FailingExchange:
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
