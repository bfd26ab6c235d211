"""TLS and SASL on listeners for clients and for other nodes: each way in that must be closed."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.request.listener_security import ListenerSecurities
from penstock.broker.request.metadata_users import MetadataUsers
from penstock.metadata.image import ClusterImage
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidConfig, ProtocolError
from penstock.net.tls_contexts import TlsContexts
from penstock.security.principal import Session
from penstock.security.revocation_lists import RevocationLists
from penstock.security.tls_settings import TlsSettings
from penstock.testing import BrokerThread, broker
from penstock.testing.clusters import reserve_port
from penstock.wire.apis.sasl_authenticate import SASL_AUTHENTICATE, SaslAuthenticateRequest
from penstock.wire.apis.sasl_handshake import SASL_HANDSHAKE, SaslHandshakeRequest
from tests.broker.events import Events
from tests.broker.logins import encoded, ports
from tests.secured import HOST, pki, versions, versions_over
from tests.waiting import eventually


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
        "penstock.authentication.timeout.ms": "60000",
        "penstock.audit.aggregation.ms": "0",
    }
    with reserved, broker(config=config) as running:
        yield running


LISTENERS = ("TLS", "INTERNAL")


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
    """With TLS 1.3 a client learns it after its side of the handshake: by an alert, or by the end."""
    with pytest.raises((ssl.SSLError, ConnectionResetError, BrokenPipeError)):
        versions(ports(mutual)[listener], pki().client(certificate))
    assert versions(ports(mutual)[listener], pki().client()).api_keys, "the listener accepts others"


def client_hello(version: int) -> bytes:
    """The first message of a client whose newest version of TLS is `version`."""
    # suites of TLS 1.0 and of 1.2
    suites = bytes.fromhex("c014c013c00ac0090035002f" + "c030c02fc02cc02b009d009c")
    # groups secp256r1 to secp521r1, uncompressed points, and signatures by RSA and ECDSA with SHA-256
    extensions = bytes.fromhex("000a00080006001700180019 000b00020100 000d0006000404010403")
    body = version.to_bytes(2, "big") + bytes(32) + b"\0" + len(suites).to_bytes(2, "big") + suites + b"\1\0"
    body += len(extensions).to_bytes(2, "big") + extensions
    message = b"\1" + len(body).to_bytes(3, "big") + body
    return b"\x16\x03\x01" + len(message).to_bytes(2, "big") + message


def first_record(port: int, sent: bytes) -> bytes:
    """What a listener answers, up to the end of its first TLS record."""
    with socket.create_connection((HOST, port), timeout=60) as client, client.makefile("rb") as received:
        client.sendall(sent)
        head = received.read(5)
        return head + received.read(int.from_bytes(head[3:], "big"))


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize(("version", "alert"), [(0x0300, 40), (0x0301, 70), (0x0302, 70)])
def test_old_versions_of_tls_are_refused(
    mutual: BrokerThread, listener: str, version: int, alert: int
) -> None:
    """RFC 5246, 7.2: the server sends a fatal alert, handshake_failure or protocol_version.

    The bytes are our own: a client of OpenSSL might refuse the version before it connects.
    """
    record = first_record(ports(mutual)[listener], client_hello(version))
    assert (record[0], record[5:]) == (21, bytes((2, alert)))


@pytest.mark.parametrize("listener", LISTENERS)
def test_the_same_hello_is_accepted_with_tls_1_2(mutual: BrokerThread, listener: str) -> None:
    assert first_record(ports(mutual)[listener], client_hello(0x0303))[0] == 22


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
        socket.create_connection((HOST, ports(mutual)[listener]), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connected,
    ):
        versions_over(connected)
        assert connected.session is None or not connected.session.has_ticket


def test_a_slow_handshake_is_cut_off(mutual: BrokerThread) -> None:
    server = mutual.broker.stages.listening.server
    with socket.create_connection((HOST, ports(mutual)["TLS"]), timeout=60) as slow:
        slow.sendall(b"\x16\x03\x01")
        versions(ports(mutual)["TLS"], pki().client())
        limits = server.limits
        assert limits.authentication_timeout_s == 60

        def close_overdue() -> None:
            server.limits = replace(limits, authentication_timeout_s=0.0)
            server._close_idle()
            server.limits = limits

        mutual._loop.call_soon_threadsafe(close_overdue)
        assert slow.recv(100) == b""


def test_a_probe_is_no_failed_handshake(mutual: BrokerThread) -> None:
    rejected = mutual.broker.stages.listening.server.counts.rejected
    socket.create_connection((HOST, ports(mutual)["TLS"])).close()
    versions(ports(mutual)["TLS"], pki().client())
    assert mutual.broker.stages.listening.server.counts.rejected == rejected


def test_the_principal_is_the_mapped_name_of_the_certificate(mutual: BrokerThread) -> None:
    context = pki().client()
    with (
        socket.create_connection((HOST, ports(mutual)["TLS"]), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connected,
    ):
        versions_over(connected)
        sessions = [connection.session for connection in mutual.broker.stages.listening.server.connections]
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
        port, securities = ports(running)["TLS"], running.broker.stages.listening.securities

        def served() -> bytes | None:
            with (
                socket.create_connection((HOST, port), timeout=60) as plain,
                certificates.client().wrap_socket(plain, server_hostname=HOST) as connected,
            ):
                versions_over(connected)
                return connected.getpeercert(binary_form=True)

        def reload() -> None:
            asyncio.run_coroutine_threadsafe(securities.reloads.reload(), running._loop).result(60)

        first = served()
        kept = certificates.client().wrap_socket(
            socket.create_connection((HOST, port), timeout=60), server_hostname=HOST
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


def test_a_certificate_that_stays_bad_is_logged_once(tmp_path: Path, events: Events) -> None:
    """The files are looked at every two seconds: a refused certificate filled the log."""
    certificates = pki()
    store = tmp_path / "server.pem"
    shutil.copy(certificates["server"], store)
    config = {
        "listeners": f"TLS://{HOST}:0",
        "listener.security.protocol.map": "TLS:SSL",
        "ssl.keystore.location": str(store),
    }
    with broker(config=config) as running:
        securities = running.broker.stages.listening.securities

        def use(name: str) -> None:
            """Replace the file at once: the broker looks at it, too."""
            shutil.copy(certificates[name], tmp_path / "new.pem")
            (tmp_path / "new.pem").rename(store)

        def look() -> int:
            again = securities.reloads.reload(changed_only=True)
            asyncio.run_coroutine_threadsafe(again, running._loop).result(60)
            return len(events.of("certificate_reload_failed"))

        use("server-renamed")
        assert [look(), look(), look()] == [1, 1, 1]
        use("server-elsewhere")
        assert [look(), look()] == [2, 2]
        use("server-renewed")
        assert look() == 2
        use("server-elsewhere")
        assert look() == 3


def test_text_around_a_certificate_may_have_any_bytes(tmp_path: Path) -> None:
    """As `openssl pkcs12` writes it, with the friendly name of the key."""
    store = tmp_path / "server.pem"
    attributes = "friendlyName: schlüssel\n".encode("latin-1")
    store.write_bytes(attributes + Path(pki()["server"]).read_bytes())
    contexts = TlsContexts(TlsSettings(keystore_file=str(store)), server=True)
    assert contexts.expiry is not None


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

    def found() -> list[dict[str, Any]]:
        failed = [fields for _, fields in events.of("authentication_failed")]
        return [fields for fields in failed if fields.get("class_uid") == 3002]

    expected = {("TLS", HOST, "TLS"), ("PLAIN", HOST, "SASL")}
    eventually(lambda: {(f["mechanism"], f["host"], f["listener"]) for f in found()} == expected)
    assert not any("s3cr3t" in str(value) for f in found() for value in f.values())


def test_failed_logins_are_counted_and_seldom_logged(events: Events) -> None:
    now = [1000.0]
    world: Any = SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: now[0]))
    audited: list[str] = []

    async def revoked(listener: str, lists: RevocationLists) -> None:
        raise AssertionError("no list is loaded")

    securities = ListenerSecurities(
        BrokerConfig({}),
        world,
        users=MetadataUsers(ClusterImage()),
        tokens=None,
        on_success=lambda session, mechanism: None,
        on_failure=lambda session, mechanism, reason: audited.append(mechanism),
        on_revoked=revoked,
    )
    connection = SimpleNamespace(
        peer="10.0.0.1:5",
        session=Session(listener="SASL"),
        count_failed_authentication=lambda: None,
    )
    for _ in range(500):
        securities._outcome(connection, "PLAIN", "wrong password")
        securities._refused(connection, "no mapping rule")
    assert (
        securities.authentications["PLAIN", "failure"] == securities.authentications["TLS", "failure"] == 500
    )
    assert len(audited) == 1000
    assert len(events.of("authentication_failed")) == 60
    now[0] += 60
    securities._outcome(connection, "PLAIN", "wrong password")
    assert events.of("authentication_failed")[-1][1]["left_out"] == 940


def test_authentications_are_counted_from_0_on(sasl: BrokerThread) -> None:
    """Alerts have the rate of failures: a series that began with the first failure would have none."""
    counted = set(sasl.broker.stages.listening.securities.authentications)
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert {(name, result) for name in mechanisms for result in ("success", "failure")} <= counted


def test_a_key_store_that_others_can_read_is_warned_about(tmp_path: Path, events: Events) -> None:
    store = tmp_path / "server.pem"
    shutil.copy(pki()["server"], store)
    store.chmod(0o644)
    config = {
        "listeners": f"TLS://{HOST}:0",
        "listener.security.protocol.map": "TLS:SSL",
        "ssl.keystore.location": str(store),
    }
    with broker(config=config):
        ((_, fields),) = events.of("key_store_readable")
        assert fields["path"] == str(store) and "chmod 600" in fields["reason"]
    strict = {**config, "penstock.security.strict": "true"}
    with (
        pytest.raises(InvalidConfig, match=r"other users .* can read it .*penstock\.security\.strict"),
        broker(config=strict),
    ):
        pass
    store.chmod(0o600)
    with broker(config=strict) as running:
        # A store that becomes readable is not loaded: the one in use stays.
        shutil.copy(pki()["server-renewed"], store)
        store.chmod(0o640)
        again = running.broker.stages.listening.securities.reloads.reload(changed_only=True)
        asyncio.run_coroutine_threadsafe(again, running._loop).result(60)
        assert "can read it" in events.of("certificate_reload_failed")[0][1]["error"]
    assert len(events.of("key_store_readable")) == 1
