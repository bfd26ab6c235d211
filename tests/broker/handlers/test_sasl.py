"""Authentication on a connection that is authenticated."""

from __future__ import annotations

from typing import Any

from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from tests.broker.logins import GOOD, JAAS, PASSWORD, ports
from tests.broker.speaker import Speaker
from tests.secured import HOST


def test_a_session_ends_unless_the_client_authenticates_again() -> None:
    """KIP-368: only SaslHandshake is accepted after the end, from the same user by the same mechanism."""
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.jaas.config": JAAS,
        "connections.max.reauth.ms": "60000",
        "connection.failed.authentication.delay.ms": "0",
    }
    with broker(config=config) as running:
        port = ports(running)["SASL"]

        def shift(seconds: float) -> None:
            """Move the sessions of all connections into the past."""
            for connection in running.broker.stages.listening.server.connections:
                gate: Any = connection.application
                gate._authenticated_at -= seconds
                old = connection.session
                assert old.expires_at is not None
                object.__setattr__(old, "expires_at", old.expires_at - seconds)

        with Speaker(port) as speaker:
            speaker.handshake()
            answer = speaker.call(SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=GOOD))
            assert answer.session_lifetime_ms == 60000
            shift(30)
            assert speaker.call(METADATA, MetadataRequest()) is not None
            shift(31)
            assert speaker.handshake() == 0
            assert speaker.token(GOOD) == (0, None)
            assert speaker.call(METADATA, MetadataRequest()) is not None
            shift(61)
            assert speaker.call(METADATA, MetadataRequest()) is None
        for mechanism, token in (("PLAIN", f"\0node\0{PASSWORD}".encode()), ("SCRAM-SHA-256", None)):
            with Speaker(port) as speaker:
                speaker.handshake()
                speaker.token(GOOD)
                shift(2)
                code = speaker.handshake(mechanism)
                if token is None:
                    assert code is None
                else:
                    failed = speaker.token(token)
                    assert failed is not None and failed[0] == ErrorCode.SASL_AUTHENTICATION_FAILED
        with Speaker(port) as speaker:
            speaker.handshake()
            speaker.token(GOOD)
            assert speaker.handshake() is None  # within a second
