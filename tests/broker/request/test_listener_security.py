"""TLS and SASL on listeners for clients and for other nodes: each way in that must be closed."""

from __future__ import annotations

import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.request.listener_security import ListenerSecurities
from penstock.model.config import BrokerConfig
from penstock.model.errors import InvalidConfig, ProtocolError
from penstock.net.tls_contexts import TlsContexts
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
        socket.create_connection((HOST, ports(mutual)[listener]), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=HOST) as connected,
    ):
        versions_over(connected)
        assert connected.session is None or not connected.session.has_ticket


def test_a_slow_handshake_is_cut_off(mutual: BrokerThread) -> None:
    server = mutual.broker.server
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
    rejected = mutual.broker.server.counts.rejected
    socket.create_connection((HOST, ports(mutual)["TLS"])).close()
    versions(ports(mutual)["TLS"], pki().client())
    assert mutual.broker.server.counts.rejected == rejected


def test_the_principal_is_the_mapped_name_of_the_certificate(mutual: BrokerThread) -> None:
    context = pki().client()
    with (
        socket.create_connection((HOST, ports(mutual)["TLS"]), timeout=60) as plain,
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
                socket.create_connection((HOST, port), timeout=60) as plain,
                certificates.client().wrap_socket(plain, server_hostname=HOST) as connected,
            ):
                versions_over(connected)
                return connected.getpeercert(binary_form=True)

        def reload() -> None:
            running._loop.call_soon_threadsafe(securities.reload)

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
        securities = running.broker.parts.securities

        def use(name: str) -> None:
            """Replace the file at once: the broker looks at it, too."""
            shutil.copy(certificates[name], tmp_path / "new.pem")
            (tmp_path / "new.pem").rename(store)

        def look() -> int:
            done = threading.Event()

            def reload() -> None:
                securities.reload(changed_only=True)
                done.set()

            running._loop.call_soon_threadsafe(reload)
            assert done.wait(60)
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
    securities = ListenerSecurities(BrokerConfig({}), world)
    audited: list[str] = []
    securities.on_failure = lambda session, mechanism, reason: audited.append(mechanism)
    connection = SimpleNamespace(
        peer="10.0.0.1:5",
        session=SimpleNamespace(listener="SASL"),
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
    counted = set(sasl.broker.parts.securities.authentications)
    mechanisms = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert {(name, result) for name in mechanisms for result in ("success", "failure")} <= counted
