"""Audit events at a real syslog server: TCP and TLS on loopback, octet counting, reconnects."""

from __future__ import annotations

import json
import socket
import ssl

import pytest

from penstock.audit.chain import Chain
from penstock.audit.verification import Verifier, read_entry
from penstock.broker.base import audit_sink
from penstock.broker.base.audit_sink import SinkThread
from penstock.broker.base.audit_syslog import AuditSyslog
from tests.broker.syslog_server import serving
from tests.secured import HOST, pki
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_sink, "_PAUSE_FIRST_S", 0.01)


def sink_to(port: int, context: ssl.SSLContext | None = None) -> SinkThread:
    delivery = AuditSyslog(HOST, port, 3, context)
    sink = SinkThread("syslog", 3, delivery, lambda previous: Chain("3/syslog/a", b"", previous))
    sink.start()
    return sink


def event(name: str) -> dict[str, object]:
    return {"event": name, "status_id": 2, "time": 1_700_000_000_000, "principal": "User:é"}


def findings(lines: list[bytes]) -> list[object]:
    verifier = Verifier(repeats=True)
    for line in lines:
        verifier.take(read_entry("", line, b""))
    verifier.end()
    return list(verifier.findings)


def test_events_arrive_as_counted_messages() -> None:
    with serving() as server:
        sink = sink_to(server.port)
        for n in range(200):
            assert sink.put(event(f"e{n}"))
        assert sink.stop(10.0)
        eventually(lambda: len(server.messages) == 201)
    assert server.messages[0].startswith(b"<108>1 2023-11-14T22:13:20.000Z ")
    assert b" penstock 3 e0 - {" in server.messages[0]
    assert [json.loads(line)["event"] for line in server.lines[:200]] == [f"e{n}" for n in range(200)]
    assert not findings(server.lines)


def test_tls_verifies_the_server_and_shows_a_certificate() -> None:
    certificates = pki()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["server"])
    context.load_verify_locations(certificates["ca"])
    context.verify_mode = ssl.CERT_REQUIRED
    client = ssl.create_default_context(cafile=certificates["ca"])
    client.load_cert_chain(certificates["alice"])
    with serving(context) as server:
        sink = sink_to(server.port, client)
        sink.put(event("secret"))
        assert sink.stop(10.0)
        eventually(lambda: len(server.messages) == 2)
        assert server.certificates[0]["subject"] == ((("commonName", "alice"),),)
        stranger = sink_to(server.port, ssl.create_default_context(cafile=certificates["other-ca"]))
        stranger.put(event("never"))
        assert not stranger.stop(0.3)
        assert len(server.messages) == 2, "a server that is not verified gets nothing"


def test_a_broken_connection_is_made_again() -> None:
    with serving() as server:
        sink = sink_to(server.port)
        for n in range(20):
            sink.put(event(f"e{n}"))
            eventually(lambda: len({json.loads(line)["seq"] for line in server.lines}) == n + 1)  # noqa: B023
            if n % 5 == 0:
                server.break_connections()
        assert sink.stop(10.0)
        eventually(lambda: json.loads(server.lines[-1])["event"] == "audit_stopped")
    assert not findings(server.lines)


def test_events_wait_for_a_server_that_is_down() -> None:
    reserved = socket.create_server((HOST, 0))
    port = reserved.getsockname()[1]
    reserved.close()
    sink = sink_to(port)
    for n in range(5):
        assert sink.put(event(f"e{n}"))
    assert len(sink) == 5
    assert not sink.stop(0.05), "they are lost, and the log says how many"
