"""Certificates for tests, made once per process, and sockets that use them."""

from __future__ import annotations

import atexit
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import pytest

from penstock.security.certificates import issue, new_authority
from penstock.testing import BrokerThread, broker
from penstock.wire.apis.api_versions import ApiVersionsResponse
from penstock.wire.conversation import Conversation

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Pki:
    """A folder with an authority, a server's certificate and those of several clients, good and bad."""

    folder: Path

    def __getitem__(self, name: str) -> str:
        return str(self.folder / f"{name}.pem")

    def client(self, name: str | None = "alice", *, authority: str = "ca") -> ssl.SSLContext:
        """The context of a client with the certificate `name`."""
        context = ssl.create_default_context(cafile=self[authority])
        if name is not None:
            context.load_cert_chain(self[name])
        return context


@cache
def pki() -> Pki:
    """The certificates; skips the test where `cryptography` is missing."""
    pytest.importorskip("cryptography")
    found = Pki(Path(tempfile.mkdtemp(prefix="penstock-pki-")))
    atexit.register(shutil.rmtree, found.folder, ignore_errors=True)
    now = datetime.now(UTC)
    authority, other = new_authority("test authority", now), new_authority("another authority", now)
    hosts = ["localhost", HOST]
    stores = {
        "ca": authority.certificate,
        "other-ca": other.certificate,
        "server": issue(authority, "broker", now, hosts=hosts).keystore,
        "server-renewed": issue(authority, "broker", now, hosts=hosts).keystore,
        "server-renamed": issue(authority, "intruder", now, hosts=hosts).keystore,
        "server-elsewhere": issue(authority, "broker", now, hosts=["elsewhere.example"]).keystore,
        "alice": issue(authority, "alice", now).keystore,
        "expired": issue(authority, "expired", now - timedelta(days=30), days=1).keystore,
        "stranger": issue(other, "alice", now).keystore,
        "server-only": issue(authority, "alice", now, hosts=hosts, client=False).keystore,
    }
    for name, content in stores.items():
        path = Path(found[name])
        path.write_text(content)
        path.chmod(0o600)
    return found


def versions(port: int, context: ssl.SSLContext | None = None, name: str = HOST) -> ApiVersionsResponse:
    """What a listener serves; OSError if it refuses the connection."""
    with socket.create_connection((HOST, port), timeout=60) as plain:
        connected = plain if context is None else context.wrap_socket(plain, server_hostname=name)
        with connected:
            return versions_over(connected)


def versions_over(connected: socket.socket) -> ApiVersionsResponse:
    conversation = Conversation("test")
    while conversation.peer is None:
        connected.sendall(b"".join(conversation.handshake()))  # type: ignore[arg-type]
        count = connected.recv_into(conversation.get_buffer())
        if not count:
            raise ConnectionResetError("the broker closed the connection")
        conversation.received(count)
    return conversation.peer


@contextmanager
def broker_of_all_protocols(user: str, password: str) -> Iterator[BrokerThread]:
    """A broker with a listener for each security protocol, and one user of PLAIN."""
    certificates = pki()
    config = {
        "listeners": f"SASL_SSL://{HOST}:0,TLS://{HOST}:0,LOGIN://{HOST}:0,OPEN://{HOST}:0",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,TLS:SSL,LOGIN:SASL_PLAINTEXT,OPEN:PLAINTEXT",
        "ssl.keystore.location": certificates["server"],
        "ssl.truststore.location": certificates["ca"],
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "sasl.jaas.config": f'x required user_{user}="{password}";',
        "penstock.log.level": "error",
    }
    with broker(config=config) as running:
        yield running
