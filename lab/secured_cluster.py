"""Clusters of both kinds for clients over SASL_SSL, with an authorizer that needs an ACL for everything.

Each broker has a plaintext listener, too, for the checks of the lab. Its clients are super users. Brokers of
Penstock use mutual TLS among themselves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from lab.apache_kafka import kafka_node
from lab.cluster import Cluster, NodeMaker, cluster_of
from lab.penstock import penstock_node
from lab.server import HOST, Server, free_ports
from penstock.security.certificates import issue, new_authority

__all__ = ["SecuredCluster", "secured_cluster"]

_USER: Final = "tester"
_PASSWORD: Final = "tester-password"
_LISTENER: Final = "SECURED"
_INTERNAL: Final = {"penstock": "INTERNAL", "kafka": "CONTROLLER"}
_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_EVERYTHING: Final = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
)
_TIMEOUT_S: Final = 60.0


@dataclass(slots=True)
class SecuredCluster(Cluster):
    """`bootstrap` has the addresses for clients with the settings `client`."""

    ports: list[int] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    @property
    def plain_bootstrap(self) -> str:
        """The addresses of the plaintext listeners."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    def start(self) -> float:
        began = time.perf_counter()
        Cluster.start(self)
        _grant(self.plain_bootstrap)
        return time.perf_counter() - began


def secured_cluster(kind: str, folder: Path, settings: Mapping[str, str], brokers: int = 3) -> SecuredCluster:
    """A cluster of a kind (`penstock` or `kafka`), not started."""
    _write_stores(folder)
    ports = free_ports(brokers)
    maker: NodeMaker = penstock_node if kind == "penstock" else kafka_node
    secured = partial(_node, maker, kind, folder, ports)
    made = cluster_of(secured, _INTERNAL[kind], folder, settings, brokers)
    client = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": _USER,
        "sasl.password": _PASSWORD,
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    return SecuredCluster(made.brokers, client, ports)


def _write_stores(folder: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority("lab", now, days=2)
    broker = issue(authority, "broker", now, hosts=[HOST, "localhost"], days=2)
    for name, text in {"ca": authority.certificate, "broker": broker.keystore}.items():
        path = folder / f"{name}.pem"
        path.touch(0o600)
        path.write_text(text)


def _node(
    maker: NodeMaker,
    kind: str,
    stores: Path,
    ports: list[int],
    folder: Path,
    port: int,
    given: Mapping[str, str],
) -> Server:
    """A broker with one more listener, for clients over SASL_SSL."""
    own = f",{_LISTENER}://{HOST}:{ports[int(given['node.id']) - 1]}"
    internal = _INTERNAL[kind]
    protocol = "SSL" if kind == "penstock" else "PLAINTEXT"
    return maker(
        folder,
        port,
        {
            **given,
            "listeners": given["listeners"] + own,
            "advertised.listeners": given["advertised.listeners"] + own,
            "listener.security.protocol.map": (
                f"PLAINTEXT:PLAINTEXT,{_LISTENER}:SASL_SSL,{internal}:{protocol}"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(stores / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(stores / "ca.pem"),
            f"listener.name.{internal.lower()}.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": "PLAIN",
            f"listener.name.{_LISTENER.lower()}.plain.sasl.jaas.config": (
                f'{_MODULE} user_{_USER}="{_PASSWORD}";'
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "false",
            "super.users": "User:ANONYMOUS;User:CN=broker",
        },
    )


def _grant(bootstrap: str) -> None:
    """Allow the user everything, by ACLs."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            f"User:{_USER}",
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind, name in _EVERYTHING
    ]
    for done in admin.create_acls(bindings, request_timeout=_TIMEOUT_S).values():
        done.result(_TIMEOUT_S)
