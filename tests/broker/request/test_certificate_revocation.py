"""Revoked certificates of clients and of brokers (`ssl.crl.location`)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import InvalidConfig
from penstock.net.tls_contexts import TlsContexts
from penstock.security.tls_settings import TlsSettings
from penstock.testing import BrokerThread, broker
from penstock.testing import cluster as thread_cluster
from tests.broker.events import Events
from tests.broker.logins import ports
from tests.revocation import Authority
from tests.secured import HOST, versions, versions_over
from tests.waiting import eventually


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.issue("broker", "alice", "bob")
    return made


@contextmanager
def listening(authority: Authority, **more: str) -> Iterator[tuple[BrokerThread, int]]:
    config = {
        "listeners": f"TLS://{HOST}:0",
        "listener.security.protocol.map": "TLS:SSL",
        "ssl.keystore.location": authority.file("broker"),
        "ssl.truststore.location": authority.file("ca"),
        "ssl.client.auth": "required",
        "ssl.crl.location": authority.file("crl"),
        "connection.failed.authentication.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    with broker(config=config) as running:
        yield running, ports(running)["TLS"]


def is_served(authority: Authority, port: int, name: str) -> bool:
    try:
        return bool(versions(port, authority.client(name)).api_keys)
    except (ssl.SSLError, ConnectionError):
        return False


def reload(running: BrokerThread) -> None:
    again = running.broker.stages.listening.securities.reloads.reload(changed_only=True)
    asyncio.run_coroutine_threadsafe(again, running._loop).result(60)


def test_a_revoked_certificate_is_refused_and_its_connections_end(
    authority: Authority, events: Events
) -> None:
    authority.publish(authority.list())
    with listening(authority) as (running, port):
        assert is_served(authority, port, "alice") and is_served(authority, port, "bob")
        plain = socket.create_connection((HOST, port), timeout=60)
        other = socket.create_connection((HOST, port), timeout=60)
        with (
            authority.client("alice").wrap_socket(plain, server_hostname=HOST) as alice,
            authority.client("bob").wrap_socket(other, server_hostname=HOST) as bob,
        ):
            versions_over(alice)
            versions_over(bob)
            authority.publish(authority.list("alice"))
            # Not by hand: the broker looks at the file itself.
            assert ended(alice)
            versions_over(bob)
        assert not is_served(authority, port, "alice")
        assert is_served(authority, port, "bob")
        found = [fields for _, fields in events.of("connections_revoked")]
        assert [each["reason"] for each in found] == ["certificate_revoked"]
        # A list that was damaged keeps the old one in force.
        authority.publish("nonsense")
        reload(running)
        assert not is_served(authority, port, "alice") and is_served(authority, port, "bob")


def ended(connected: socket.socket) -> bool:
    try:
        return connected.recv(1) == b""
    except ConnectionResetError:
        return True


def test_an_expired_list_is_warned_about_and_still_enforced(authority: Authority, events: Events) -> None:
    authority.publish(authority.list("alice", age=timedelta(days=30)))
    with listening(authority) as (_, port):
        assert not is_served(authority, port, "alice")
        assert is_served(authority, port, "bob")
    ((_, fields),) = events.of("revocation_list_expired")
    assert "certificates that were revoked since are accepted" in fields["reason"]


def test_an_expired_list_refuses_all_if_strict(authority: Authority, events: Events) -> None:
    authority.publish(authority.list("alice", age=timedelta(days=30)))
    with listening(authority, penstock_security_strict="true") as (running, port):
        assert not is_served(authority, port, "alice")
        assert not is_served(authority, port, "bob")
        authority.publish(authority.list("alice"))
        reload(running)
        assert is_served(authority, port, "bob") and not is_served(authority, port, "alice")
    assert len(events.of("revocation_list_expired")) == 1


def test_a_list_that_expires_is_noticed(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    authority.publish(authority.list("alice"))
    settings = TlsSettings(
        keystore_file=str(authority.file("broker")),
        truststore_file=str(authority.file("ca")),
        crl_file=str(authority.file("crl")),
        client_auth="required",
    )
    contexts = TlsContexts(settings, server=True)
    assert contexts.current.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF
    assert not contexts.has_changed()
    later = authority.now + timedelta(days=30)
    monkeypatch.setattr("penstock.net.tls_contexts.time.time", later.timestamp)
    assert contexts.has_changed() and contexts.has_expired_list
    contexts.replace(settings)
    assert not contexts.has_changed()
    assert not contexts.current.verify_flags & ssl.VERIFY_CRL_CHECK_LEAF


@pytest.mark.parametrize("content", [None, "", "nonsense", "ca"])
def test_a_broker_does_not_start_without_its_list(authority: Authority, content: str | None) -> None:
    if content is not None:
        authority.publish(authority.file("ca").read_text() if content == "ca" else content)
    with pytest.raises(InvalidConfig, match=r"ssl\.crl\.location .* cannot be used"), listening(authority):
        pass


def test_brokers_refuse_a_broker_whose_certificate_is_revoked(authority: Authority) -> None:
    authority.publish(authority.list())
    config: dict[str, Any] = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:SSL",
        "ssl.keystore.location": authority.file("broker"),
        "ssl.truststore.location": authority.file("ca"),
        "ssl.client.auth": "required",
        "ssl.crl.location": authority.file("crl"),
    }
    with thread_cluster(brokers=2, config=config) as running:
        servers = [running._running(node).broker.stages.listening.internal for node in running.ids]
        links = [each.server for each in servers if each is not None]
        assert any(server.connections for server in links)
        authority.publish(authority.list("broker"))

        before = [sum(each.counts.handshake_failures.values()) for each in links]
        # One side refuses the other's certificate, or closes because its own is refused.
        eventually(
            lambda: all(
                sum(each.counts.handshake_failures.values()) > count and not each.connections
                for each, count in zip(links, before, strict=True)
            )
        )
        authority.publish(authority.list())
        running.wait_until(lambda: running.controller is not None and any(e.connections for e in links))
