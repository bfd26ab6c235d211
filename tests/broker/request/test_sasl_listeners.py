"""Listeners with SASL: logins, states, limits before authentication, sessions."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import threading
from typing import Any

import pytest

from penstock.broker.base.system_ports import SystemRng
from penstock.model.errors import ErrorCode
from penstock.net.client import Peer
from penstock.net.client_security import client_security
from penstock.net.peer_errors import PeerLost
from penstock.security import sasl_client
from penstock.security.mechanism import Login
from penstock.security.mechanisms import mechanism_named
from penstock.testing import BrokerThread, broker
from penstock.wire.apis import APIS
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.conversation import Conversation
from tests.broker.logins import GOOD, JAAS, PASSWORD, authenticate, encoded, ports
from tests.broker.requests import until
from tests.broker.speaker import Speaker
from tests.secured import HOST

SASL_LISTENERS = ("SASL", "INTERNAL")


@pytest.mark.parametrize("listener", SASL_LISTENERS)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_authenticates(sasl: BrokerThread, listener: str, mechanism: str) -> None:
    with socket.create_connection((HOST, ports(sasl)[listener]), timeout=60) as connected:
        conversation = Conversation(
            "t", login=Login(mechanism_named(mechanism), "bob", lambda: PASSWORD, lambda: "CLIENT")
        )
        authenticate(connected, conversation)
        assert conversation.peer is not None and conversation.peer.api_keys


@pytest.mark.parametrize("listener", SASL_LISTENERS)
def test_a_raw_token_after_the_old_handshake(sasl: BrokerThread, listener: str) -> None:
    with Speaker(ports(sasl)[listener]) as speaker:
        assert speaker.handshake(version=0) == 0
        speaker.send_raw(GOOD)
        assert speaker.receive_raw() == b""
        assert speaker.call(METADATA, MetadataRequest()) is not None


@pytest.mark.parametrize("listener", SASL_LISTENERS)
@pytest.mark.parametrize("key", sorted(APIS.keys() - {API_VERSIONS.key, SASL_HANDSHAKE.key}))
def test_no_other_api_is_served_before_authentication(sasl: BrokerThread, listener: str, key: int) -> None:
    api = APIS[key]
    with Speaker(ports(sasl)[listener]) as speaker:
        assert speaker.call(api, api.request()) is None


@pytest.mark.parametrize("listener", SASL_LISTENERS)
def test_requests_in_a_wrong_state(sasl: BrokerThread, listener: str) -> None:
    port = ports(sasl)[listener]
    hello = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    with Speaker(port) as speaker:
        assert speaker.call(API_VERSIONS, hello) is not None
        assert speaker.call(API_VERSIONS, hello) is None  # only once
    with Speaker(port) as speaker:
        assert speaker.handshake() == 0
        assert speaker.handshake() == ErrorCode.ILLEGAL_SASL_STATE
        assert speaker.receive_raw() is None
    with Speaker(port) as speaker:
        assert speaker.handshake("GSSAPI") == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert speaker.receive_raw() is None
    with Speaker(port) as speaker:
        assert speaker.handshake() == 0
        assert speaker.token(GOOD) == (0, None)
        # Without an end of the session there is no re-authentication.
        assert speaker.handshake() == ErrorCode.ILLEGAL_SASL_STATE
        assert speaker.call(METADATA, MetadataRequest()) is not None


@pytest.mark.parametrize("listener", SASL_LISTENERS)
def test_failures_look_the_same(sasl: BrokerThread, listener: str) -> None:
    answers = set()
    for token in (b"\0bob\0wrong", b"\0eve\0wrong", b"eve" + GOOD, b"nonsense"):
        with Speaker(ports(sasl)[listener]) as speaker:
            speaker.handshake()
            answers.add(speaker.token(token))
            assert speaker.receive_raw() is None
    (only,) = answers
    assert only is not None and only[0] == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_the_key_of_a_login_is_computed_once_and_in_a_thread(
    sasl: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBKDF2 takes milliseconds, in which a broker would serve no client."""
    threads: list[int] = []

    def pbkdf2(*arguments: Any) -> bytes:
        threads.append(threading.get_ident())
        return hashlib.pbkdf2_hmac(*arguments)

    monkeypatch.setattr(sasl_client, "pbkdf2_hmac", pbkdf2)
    options = {"sasl.jaas.config": JAAS}

    async def main() -> None:
        loop = asyncio.get_running_loop()
        security = client_security(
            "SASL_PLAINTEXT", options.get, lambda: "nonce", in_thread=asyncio.to_thread
        )
        for _ in range(3):
            peer = Peer(
                loop, HOST, ports(sasl)["INTERNAL"], client_id="t", rng=SystemRng(), security=security
            )
            assert (await peer.send(METADATA, MetadataRequest(), 20)).brokers
            peer.close()

    asyncio.run(main())
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


def test_a_wrong_password_ends_the_login_of_a_peer(sasl: BrokerThread) -> None:
    options = {"sasl.jaas.config": 'x required username="bob" password="wrong";'}

    async def main() -> None:
        security = client_security(
            "SASL_PLAINTEXT", options.get, lambda: "nonce", in_thread=asyncio.to_thread
        )
        loop = asyncio.get_running_loop()
        peer = Peer(loop, HOST, ports(sasl)["INTERNAL"], client_id="t", rng=SystemRng(), security=security)
        with pytest.raises(PeerLost, match="was refused, error 58"):
            await peer.send(METADATA, MetadataRequest(), 20)
        peer.close()

    asyncio.run(main())


@pytest.mark.parametrize("listener", SASL_LISTENERS)
def test_requests_before_authentication_are_small(sasl: BrokerThread, listener: str) -> None:
    with Speaker(ports(sasl)[listener]) as speaker:
        speaker.handshake()
        speaker.socket.sendall(struct.pack(">i", 524289))
        assert speaker.receive_raw() is None


def test_requests_before_authentication_have_buffers_of_their_own(sasl: BrokerThread) -> None:
    server = sasl.broker.stages.listening.server
    with Speaker(ports(sasl)["SASL"]) as speaker:
        speaker.socket.sendall(struct.pack(">i", 500_000) + b"x" * 200_000)
        until(lambda: server.unauthenticated.pool.held >= 200_000)
        assert server.pool.held == 0
    until(lambda: server.unauthenticated.pool.held == 0 and len(server.unauthenticated) == 0)
    with Speaker(ports(sasl)["SASL"]) as speaker:
        speaker.handshake()
        assert speaker.token(GOOD) == (0, None)
        assert len(server.unauthenticated) == 0
        speaker.socket.sendall(struct.pack(">i", 1_000_000) + b"x" * 600_000)
        until(lambda: server.pool.held >= 600_000)
        assert server.unauthenticated.pool.held == 0
    until(lambda: server.pool.held == 0)


def test_the_oldest_connection_without_authentication_makes_way() -> None:
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": JAAS,
        "penstock.unauthenticated.connections.max.per.ip": "2",
    }
    with broker(config=config) as running:
        port = ports(running)["SASL"]
        with Speaker(port) as first, Speaker(port) as second, Speaker(port) as third:
            assert first.receive_raw() is None
            for speaker in (third, second):
                speaker.handshake()
                assert speaker.token(GOOD) == (0, None)
            with Speaker(port) as fourth:
                assert fourth.handshake() == 0
                assert second.call(METADATA, MetadataRequest()) is not None


def test_an_address_that_fails_too_often_is_refused() -> None:
    config = {
        "listeners": f"SASL://{HOST}:0,PLAIN://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,PLAIN:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "0",
        "penstock.authentication.failures.per.ip.max": "2",
    }

    def is_answered(port: int) -> bool:
        with socket.create_connection((HOST, port)) as s:
            request = SaslHandshakeRequest(mechanism="none of these")
            s.sendall(encoded(SASL_HANDSHAKE, 1, request))
            try:
                return bool(s.recv(1000))
            except ConnectionResetError:
                return False

    with broker(config=config) as running:
        port = ports(running)["SASL"]
        assert [is_answered(port) for _ in range(4)] == [True, True, False, False]
        assert is_answered(ports(running)["PLAIN"]), "a listener without authentication"
