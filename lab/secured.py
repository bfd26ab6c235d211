"""Brokers of both kinds with TLS and the same certificates: ECDSA on P-256, in PEM stores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from lab.apache_kafka import SINGLE_BROKER, kafka_node
from lab.penstock import penstock_node
from lab.server import HOST, Server, free_ports
from penstock.security.certificates import issue, new_authority

__all__ = ["SecuredServer", "secured"]

_USER: Final = "bench"
_PASSWORD: Final = "bench-password"
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


@dataclass(frozen=True, slots=True)
class SecuredServer:
    """A broker that has a plaintext listener, too. Settings are librdkafka's."""

    server: Server
    tls_port: int
    sasl_port: int
    folder: Path

    @property
    def tls(self) -> tuple[str, dict[str, str]]:
        """The address for clients with a certificate, and their settings."""
        store = str(self.folder / "client.pem")
        own = {"ssl.certificate.location": store, "ssl.key.location": store}
        return f"{HOST}:{self.tls_port}", {"security.protocol": "ssl", **self._trust, **own}

    @property
    def sasl(self) -> tuple[str, dict[str, str]]:
        """The address for clients with a password, and their settings."""
        login = {"sasl.mechanism": "PLAIN", "sasl.username": _USER, "sasl.password": _PASSWORD}
        return f"{HOST}:{self.sasl_port}", {"security.protocol": "sasl_ssl", **self._trust, **login}

    @property
    def _trust(self) -> dict[str, str]:
        return {"ssl.ca.location": str(self.folder / "ca.pem")}


def secured(kind: str, folder: Path, settings: Mapping[str, str]) -> SecuredServer:
    """A broker of a kind (`penstock` or `kafka`), not started: TLS with client certificates, and SASL_SSL."""
    now = datetime.now(UTC)
    authority = new_authority("lab", now, days=2)
    stores = {
        "ca": authority.certificate,
        "server": issue(authority, "broker", now, hosts=[HOST, "localhost"], days=2).keystore,
        "client": issue(authority, "client", now, days=2).keystore,
    }
    for name, text in stores.items():
        path = folder / f"{name}.pem"
        path.touch(0o600)
        path.write_text(text)
    plain, tls, sasl, controller = free_ports(4)
    listeners = f"PLAINTEXT://{HOST}:{plain},TLS://{HOST}:{tls},SASL://{HOST}:{sasl}"
    protocols = "PLAINTEXT:PLAINTEXT,TLS:SSL,SASL:SASL_SSL"
    properties = {
        "node.id": "1",
        "listeners": listeners,
        "listener.security.protocol.map": protocols,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.tls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{_MODULE} user_{_USER}="{_PASSWORD}";',
        **settings,
    }
    if kind == "penstock":
        return SecuredServer(penstock_node(folder, plain, properties), tls, sasl, folder)
    properties |= {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        **SINGLE_BROKER,
    }
    return SecuredServer(kafka_node(folder, plain, properties), tls, sasl, folder)
