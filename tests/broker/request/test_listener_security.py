"""TLS and SASL on listeners for clients and for other nodes: each way in that must be closed."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import socket
import ssl
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from penstock.broker.base.system_ports import SystemRng
from penstock.model.errors import ErrorCode, InvalidConfig, ProtocolError
from penstock.net.client import Peer
from penstock.net.client_security import client_security
from penstock.net.peer_errors import PeerLost
from penstock.security import sasl_client
from penstock.security.sasl_client import Login
from penstock.testing import BrokerThread, broker
from penstock.testing.clusters import reserve_port
from penstock.wire.api import Api
from penstock.wire.apis import APIS
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from penstock.wire.conversation import Conversation
from penstock.wire.messages import encode_request
from penstock.wire.schema import Struct
from tests.broker.authorization.acls import CONFIG as ACLS
from tests.broker.authorization.acls import Admin
from tests.broker.configs import BROKER, NODE, SET, alter, replace
from tests.broker.events import Events
from tests.broker.raw import RawClient
from tests.broker.requests import until
from tests.broker.speaker import Speaker
from tests.secured import HOST, pki, versions, versions_over

PASSWORD = "correct horse"
_USERS = f'user_node="{PASSWORD}" user_bob="{PASSWORD}"'
JAAS = f'x.LoginModule required username="node" password="{PASSWORD}" {_USERS};'


def ports(running: BrokerThread) -> dict[str, int]:
    """The ports of the listeners by name."""
    internal = running.broker.internal
    found = [*running.broker.listeners, *([internal.listener] if internal else [])]
    return {listener.name: listener.port for listener in found}


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """A broker whose listeners, for clients (TLS) and for nodes (INTERNAL), need certificates."""
    certificates = pki()
    reserved = reserve_port()
    internal = reserved.getsockname()[1]
    config = {
        "listeners": f"TLS://{HOST}:0,INTERNAL://{HOST}:{internal}",
        "listener.security.protocol.map": "TLS:SSL,INTERNAL:SSL",
        "controller.listener.names": "INTERNAL",
        "controller.quorum.voters": f"1@{HOST}:{internal}",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "ssl.client.auth": "required",
        "listener.name.tls.ssl.principal.mapping.rules": "RULE:^CN=(.*?)$/$1/",
        "penstock.authentication.timeout.ms": "100",
        "penstock.audit.aggregation.ms": "0",
    }
    with reserved, broker(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def sasl() -> Iterator[BrokerThread]:
    """A broker whose listeners, for clients (SASL) and for nodes (INTERNAL), need a password."""
    reserved = reserve_port()
    internal = reserved.getsockname()[1]
    config = {
        "listeners": f"SASL://{HOST}:0,INTERNAL://{HOST}:{internal}",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,INTERNAL:SASL_PLAINTEXT",
        "controller.listener.names": "INTERNAL",
        "controller.quorum.voters": f"1@{HOST}:{internal}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config": JAAS,
        "connection.failed.authentication.delay.ms": "10",
        "penstock.audit.aggregation.ms": "0",
    }
    with reserved, broker(config=config) as running:
        yield running


LISTENERS = ("TLS", "INTERNAL")
SASL_LISTENERS = ("SASL", "INTERNAL")


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_with_a_certificate_connects(
    mutual: BrokerThread, listener: str, version: ssl.TLSVersion
) -> None:
    context = pki().client()
    context.minimum_version = context.maximum_version = version
    assert versions(ports(mutual)[listener], context).api_keys
    assert versions(ports(mutual)[listener], context, "localhost").api_keys


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("certificate", [None, "expired", "stranger", "server-only"])
def test_other_certificates_are_refused(mutual: BrokerThread, listener: str, certificate: str | None) -> None:
    with pytest.raises(OSError):
        versions(ports(mutual)[listener], pki().client(certificate))


@pytest.mark.parametrize("listener", LISTENERS)
def test_old_versions_of_tls_are_refused(mutual: BrokerThread, listener: str) -> None:
    context = pki().client()
    with pytest.warns(DeprecationWarning):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(OSError):
        versions(ports(mutual)[listener], context)


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_client_refuses_another_server(mutual: BrokerThread, listener: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        versions(ports(mutual)[listener], pki().client(authority="other-ca"))
    with pytest.raises(ssl.SSLCertVerificationError):
        versions(ports(mutual)[listener], pki().client(), "elsewhere.example")


@pytest.mark.parametrize("listener", LISTENERS)
def test_plaintext_on_a_tls_port_is_refused(mutual: BrokerThread, listener: str) -> None:
    with pytest.raises((OSError, ProtocolError)):
        versions(ports(mutual)[listener])
    assert versions(ports(mutual)[listener], pki().client()).api_keys


@pytest.mark.parametrize("listener", LISTENERS)
def test_no_ticket_outlives_the_removal_of_an_authority(mutual: BrokerThread, listener: str) -> None:
    context = pki().client()
    with (
        socket.create_connection((HOST, ports(mutual)[listener]), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connected,
    ):
        versions_over(connected)
        assert connected.session is None or not connected.session.has_ticket


def test_a_slow_handshake_is_cut_off(mutual: BrokerThread) -> None:
    server = mutual.broker.server
    with socket.create_connection((HOST, ports(mutual)["TLS"]), timeout=20) as slow:
        slow.sendall(b"\x16\x03\x01")
        versions(ports(mutual)["TLS"], pki().client())
        time.sleep(0.11)  # the timeout of the handshake
        mutual._loop.call_soon_threadsafe(server._close_idle)
        assert slow.recv(100) == b""


def test_a_probe_is_no_failed_handshake(mutual: BrokerThread) -> None:
    rejected = mutual.broker.server.counts.rejected
    socket.create_connection((HOST, ports(mutual)["TLS"])).close()
    versions(ports(mutual)["TLS"], pki().client())
    assert mutual.broker.server.counts.rejected == rejected


def test_the_principal_is_the_mapped_name_of_the_certificate(mutual: BrokerThread) -> None:
    context = pki().client()
    with (
        socket.create_connection((HOST, ports(mutual)["TLS"]), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connected,
    ):
        versions_over(connected)
        sessions = [connection.session for connection in mutual.broker.server.connections]
    assert {(str(s.principal), s.listener, s.host) for s in sessions} == {("User:alice", "TLS", HOST)}


@pytest.mark.parametrize("listener", LISTENERS)
def test_a_missing_certificate_is_a_clear_error(listener: str) -> None:
    config = {
        "listeners": f"TLS://{HOST}:0",
        "listener.security.protocol.map": "TLS:SSL",
        "ssl.keystore.location": "/nowhere.pem",
    }
    with (
        pytest.raises(InvalidConfig, match=r"listener TLS: /nowhere\.pem has no PEM private key"),
        broker(config=config),
    ):
        pass


def test_certificates_are_reloaded_without_a_dropped_connection(tmp_path: Path) -> None:
    """A renewed certificate serves new connections; half a pair, another subject or fewer names do not."""
    certificates = pki()
    store, trust = tmp_path / "server.pem", tmp_path / "ca.pem"
    shutil.copy(certificates["server"], store)
    shutil.copy(certificates["ca"], trust)
    config = {
        "listeners": f"TLS://{HOST}:0",
        "listener.security.protocol.map": "TLS:SSL",
        "ssl.keystore.location": store,
        "ssl.truststore.location": trust,
        "ssl.client.auth": "required",
    }
    with broker(config=config) as running:
        port, securities = ports(running)["TLS"], running.broker.parts.securities

        def served() -> bytes | None:
            with (
                socket.create_connection((HOST, port), timeout=20) as plain,
                certificates.client().wrap_socket(plain, server_hostname=HOST) as connected,
            ):
                versions_over(connected)
                return connected.getpeercert(binary_form=True)

        def reload() -> None:
            running._loop.call_soon_threadsafe(securities.reload)

        first = served()
        kept = certificates.client().wrap_socket(
            socket.create_connection((HOST, port), timeout=20), server_hostname=HOST
        )
        with kept:
            for bad in ("server-renamed", "server-elsewhere"):
                shutil.copy(certificates[bad], store)
                reload()
                assert served() == first
            store.write_text(Path(certificates["server-renewed"]).read_text()[:400])
            reload()
            assert served() == first
            shutil.copy(certificates["server-renewed"], store)
            reload()
            assert served() != first
            shutil.copy(certificates["other-ca"], trust)
            reload()
            with pytest.raises(OSError):
                served()
            versions_over(kept)


@pytest.mark.parametrize("validate_only", [True, False])
@pytest.mark.parametrize("way", ["incremental", "legacy"])
def test_configs_with_a_bad_certificate_are_refused(
    altered: tuple[BrokerThread, RawClient], validate_only: bool, way: str
) -> None:
    """The broker that has the files checks them, and serves the old certificate on."""
    running, client = altered
    certificates, port = pki(), ports(running)["TLS"]

    def outcome(values: dict[str, str]) -> tuple[int, str]:
        if way == "legacy":
            code, message = replace(client, BROKER, NODE, values, validate_only=validate_only)
        else:
            changes = [(name, SET, value) for name, value in values.items()]
            code, message = alter(client, BROKER, NODE, *changes, validate_only=validate_only)
        return code, message or ""

    key = "listener.name.tls.ssl.keystore.location"
    for path, reason in (
        ("/nowhere.pem", "listener TLS: /nowhere.pem has no PEM private key"),
        (certificates["ca"], "has no PEM private key"),
        (certificates["server-renamed"], "another subject"),
        (certificates["server-elsewhere"], "lacks alternative names"),
    ):
        code, message = outcome({key: path})
        assert (code, reason in message) == (ErrorCode.INVALID_CONFIG, True), message
    code, message = outcome({"listener.name.TLS.ssl.keystore.location": certificates["server"]})
    assert code == ErrorCode.INVALID_CONFIG and f"did you mean {key}?" in message
    assert versions(port, certificates.client()).api_keys
    assert key not in running.broker.config
    assert outcome({key: certificates["server-renewed"]}) == (ErrorCode.NONE, "")
    assert (key in running.broker.config) is not validate_only
    assert versions(port, certificates.client()).api_keys
    assert replace(client, BROKER, NODE, {})[0] == ErrorCode.NONE


@pytest.fixture(scope="module")
def altered() -> Iterator[tuple[BrokerThread, RawClient]]:
    """A broker with TLS, and a client that alters its configs."""
    certificates = pki()
    config = {
        "listeners": f"PLAINTEXT://{HOST}:0,TLS://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "ssl.client.auth": "required",
    }
    with broker(config=config) as running, RawClient(running.bootstrap) as client:
        yield running, client


def test_a_client_without_rights_does_not_learn_which_files_exist() -> None:
    certificates = pki()
    config = {
        **ACLS,
        "listeners": f"PLAINTEXT://{HOST}:0,TLS://{HOST}:0",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,TLS:SSL",
        "ssl.keystore.location": certificates["server"],
    }
    with broker(config=config) as running, Admin(running.bootstrap), RawClient(running.bootstrap) as client:
        code, message = alter(client, BROKER, NODE, ("ssl.keystore.location", SET, "/nowhere.pem"))
        assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert "nowhere" not in (message or "")


# -- SASL


def authenticate(connected: socket.socket, conversation: Conversation) -> None:
    while not conversation.is_ready:
        connected.sendall(b"".join(conversation.handshake()))  # type: ignore[arg-type]
        conversation.received(connected.recv_into(conversation.get_buffer()))


GOOD = f"\0bob\0{PASSWORD}".encode()


@pytest.mark.parametrize("listener", SASL_LISTENERS)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_authenticates(sasl: BrokerThread, listener: str, mechanism: str) -> None:
    with socket.create_connection((HOST, ports(sasl)[listener]), timeout=20) as connected:
        conversation = Conversation("t", login=Login(mechanism, "bob", lambda: PASSWORD, lambda: "CLIENT"))
        authenticate(connected, conversation)
        assert conversation.peer is not None and conversation.peer.api_keys


def test_a_user_of_the_metadata_authenticates(sasl: BrokerThread) -> None:
    """AlterUserScramCredentials has an effect at once, also when it removes the user."""
    port = ports(sasl)["SASL"]
    admin = AdminClient(
        {
            "bootstrap.servers": f"{HOST}:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "bob",
            "sasl.password": PASSWORD,
        }
    )
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)

    def alter(change: UserScramCredentialAlteration) -> None:
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(20)

    def works() -> bool:
        conversation = Conversation("t", login=Login("SCRAM-SHA-256", "carol", lambda: "pw", lambda: "C"))
        try:
            with socket.create_connection((HOST, port), timeout=20) as connected:
                authenticate(connected, conversation)
        except ProtocolError:
            return False
        return True

    assert not works()
    alter(UserScramCredentialUpsertion("carol", info, b"pw"))
    assert works()
    alter(UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_256))
    assert not works()


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


def test_salts_do_not_reveal_which_users_exist(tmp_path: Path) -> None:
    """Unknown users and those of the config keep their salts over restarts, like those of the metadata."""
    config = {
        "listeners": f"SASL://{HOST}:0",
        "listener.security.protocol.map": "SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.jaas.config": JAAS,
    }

    def challenges() -> list[bytes]:
        found = []
        with broker(data=tmp_path, config=config) as running:
            # The first start of a cluster makes the key.
            until(lambda: running.broker.parts.securities.has_salt_key)
            for user in (b"bob", b"eve"):
                with Speaker(ports(running)["SASL"]) as speaker:
                    speaker.handshake("SCRAM-SHA-256")
                    request = SaslAuthenticateRequest(auth_bytes=b"n,,n=" + user + b",r=c")
                    reply: bytes = speaker.call(SASL_AUTHENTICATE, request).auth_bytes
                    found.append(reply.partition(b",")[2])
        return found

    bob, eve = first = challenges()
    assert challenges() == first
    assert bob != eve and len(bob) == len(eve)
    assert bob.endswith(b",i=4096") and eve.endswith(b",i=4096")


def test_the_key_of_a_login_is_computed_once_and_in_a_thread(
    sasl: BrokerThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PBKDF2 takes milliseconds, in which a broker would serve nobody."""
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
    server = sasl.broker.server
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
            for connection in running.broker.server.connections:
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


def encoded(api: Api[Any, Any], version: int, request: Struct) -> bytes:
    return b"".join(map(bytes, encode_request(api, version, 1, "c", request)))  # type: ignore[arg-type]


def test_failed_logins_and_handshakes_are_audited(
    sasl: BrokerThread, mutual: BrokerThread, events: Events
) -> None:
    with socket.create_connection((HOST, ports(mutual)["TLS"])) as s:
        s.sendall(b"not a handshake")
        while s.recv(1000):
            pass
    with socket.create_connection((HOST, ports(sasl)["SASL"])) as s:
        s.sendall(encoded(SASL_HANDSHAKE, 1, SaslHandshakeRequest(mechanism="PLAIN")))
        s.recv(1000)
        s.sendall(encoded(SASL_AUTHENTICATE, 1, SaslAuthenticateRequest(auth_bytes=b"\0bob\0s3cr3t")))
        while s.recv(1000):
            pass
    found = [f for _, name, f in events.all if name == "authentication_failed" and f.get("class_uid") == 3002]
    assert {(f["mechanism"], f["host"], f["listener"]) for f in found} == {
        ("TLS", HOST, "TLS"),
        ("PLAIN", HOST, "SASL"),
    }
    assert not any("s3cr3t" in str(value) for f in found for value in f.values())


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
