"""Clusters of both kinds for clients with passwords, certificates or tokens, and an authorizer with ACLs.

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
from typing import Any, Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import load_pem_x509_certificate

from lab.apache_kafka import kafka_node
from lab.cluster import Cluster, NodeMaker, cluster_of
from lab.penstock import penstock_node
from lab.server import HOST, Server, free_ports
from lab.token_endpoint import AUDIENCE, ISSUER, SUBJECT, TokenEndpoint
from penstock.security.certificates import issue, new_authority

__all__ = ["SecuredCluster", "bearer_cluster", "mutual_cluster", "secured_cluster"]

_USER: Final = "tester"
_PASSWORD: Final = "tester-password"
_LISTENER: Final = "SECURED"
_INTERNAL: Final = {"penstock": "INTERNAL", "kafka": "CONTROLLER"}
_SECURITY: Final = "org.apache.kafka.common.security"
_MODULE: Final = f"{_SECURITY}.plain.PlainLoginModule required"
_EVERYTHING: Final = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.BROKER, "kafka-cluster"),
)
_TIMEOUT_S: Final = 60.0
#: A test that counts ACLs sets it: it finds its own ones only.
_OPEN: Final = "allow.everyone.if.no.acl.found"


@dataclass(slots=True)
class SecuredCluster(Cluster):
    """`bootstrap` has the addresses for clients with the settings `client`."""

    ports: list[int] = field(default_factory=list)
    #: whether clients need ACLs, which are created after the start
    needs_acls: bool = True

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
        if self.needs_acls:
            _grant(self.plain_bootstrap)
        return time.perf_counter() - began


@dataclass(slots=True)
class _BearerCluster(SecuredCluster):
    """A cluster with the endpoint that issues tokens for it."""

    endpoint: TokenEndpoint | None = None

    def stop(self) -> None:
        SecuredCluster.stop(self)
        if self.endpoint is not None:
            self.endpoint.close()
            self.endpoint = None


def secured_cluster(kind: str, folder: Path, settings: Mapping[str, str], brokers: int = 3) -> SecuredCluster:
    """A cluster of a kind (`penstock` or `kafka`) for clients with a password, not started."""
    client = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": _USER,
        "sasl.password": _PASSWORD,
        "ssl.ca.location": str(folder / "ca.pem"),
    }
    login = {
        "sasl.enabled.mechanisms": "PLAIN",
        _of_listener("plain.sasl.jaas.config"): f'{_MODULE} user_{_USER}="{_PASSWORD}";',
    }
    return SecuredCluster(*_parts(kind, "SASL_SSL", folder, {**settings, **login}, brokers, client))


def mutual_cluster(kind: str, folder: Path, settings: Mapping[str, str], brokers: int = 3) -> SecuredCluster:
    """A cluster of a kind for clients with a certificate, not started."""
    client = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(folder / "ca.pem"),
        "ssl.certificate.location": str(folder / "client.crt"),
        "ssl.key.location": str(folder / "client.key"),
        "ssl.key.password": _PASSWORD,
    }
    certificate = {_of_listener("ssl.client.auth"): "required"}
    return SecuredCluster(*_parts(kind, "SSL", folder, {**settings, **certificate}, brokers, client))


def bearer_cluster(kind: str, folder: Path, settings: Mapping[str, str], brokers: int = 3) -> SecuredCluster:
    """A cluster of a kind for clients with tokens of an endpoint that serves already, not started."""
    endpoint = TokenEndpoint(folder)
    client = {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(folder / "ca.pem"),
        **endpoint.client,
    }
    names = {"jwks.endpoint.url": endpoint.jwks_url, "expected.issuer": ISSUER, "expected.audience": AUDIENCE}
    login = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        **{_of_listener(f"oauthbearer.sasl.oauthbearer.{name}"): value for name, value in names.items()},
    }
    if kind == "kafka":
        module = f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;"
        handler = f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        login[_of_listener("oauthbearer.sasl.jaas.config")] = module
        login[_of_listener("oauthbearer.sasl.server.callback.handler.class")] = handler
    servers, client, environment, ports, needs_acls = _parts(
        kind, "SASL_SSL", folder, {**settings, **login}, brokers, client
    )
    if kind == "kafka":
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={endpoint.jwks_url}"
        for server in servers:
            server.environment = {"JAVA_TOOL_OPTIONS": allowed}
    found = {**environment, **endpoint.environment}
    return _BearerCluster(servers, client, found, ports, needs_acls, endpoint)


def _of_listener(key: str) -> str:
    return f"listener.name.{_LISTENER.lower()}.{key}"


def _parts(
    kind: str,
    protocol: str,
    folder: Path,
    settings: Mapping[str, str],
    brokers: int,
    client: dict[str, str],
) -> tuple[list[Server], dict[str, str], dict[str, str], list[int], bool]:
    """The fields of a `SecuredCluster`."""
    environment = _write_stores(folder)
    ports = free_ports(brokers)
    maker: NodeMaker = penstock_node if kind == "penstock" else kafka_node
    secured = partial(_node, maker, kind, protocol, folder, ports)
    made = cluster_of(secured, _INTERNAL[kind], folder, settings, brokers)
    return made.brokers, client, environment, ports, settings.get(_OPEN) != "true"


def _write_stores(folder: Path) -> dict[str, str]:
    """Write keys and certificates in all formats; the variables by which librdkafka's tests find them."""
    now = datetime.now(UTC)
    authority = new_authority("lab", now, days=2)
    broker = issue(authority, "broker", now, hosts=[HOST, "localhost"], days=2)
    client = issue(authority, _USER, now, days=2)
    certificate = load_pem_x509_certificate(client.certificate.encode())
    root = load_pem_x509_certificate(authority.certificate.encode())
    key: Any = load_pem_private_key(client.key.encode(), None)
    secret = BestAvailableEncryption(_PASSWORD.encode())
    stores = {
        "ca.pem": authority.certificate.encode(),
        "ca.der": root.public_bytes(Encoding.DER),
        "broker.pem": broker.keystore.encode(),
        "client.crt": client.certificate.encode(),
        "client.key": client.key.encode(),
        "client.der": certificate.public_bytes(Encoding.DER),
        "client-key.der": key.private_bytes(Encoding.DER, PrivateFormat.TraditionalOpenSSL, NoEncryption()),
        "client.p12": serialize_key_and_certificates(b"client", key, certificate, [root], secret),
    }
    for name, content in stores.items():
        path = folder / name
        path.touch(0o600)
        path.write_bytes(content)
    found = {
        "SSL_pkcs": "client.p12",
        "SSL_pub_der": "client.der",
        "SSL_pub_pem": "client.crt",
        "SSL_priv_der": "client-key.der",
        "SSL_priv_pem": "client.key",
        "SSL_ca_der": "ca.der",
        "SSL_all_cas_pem": "ca.pem",
    }
    return {**{name: str(folder / file) for name, file in found.items()}, "SSL_password": _PASSWORD}


def _node(
    maker: NodeMaker,
    kind: str,
    client_protocol: str,
    stores: Path,
    ports: list[int],
    folder: Path,
    port: int,
    given: Mapping[str, str],
) -> Server:
    """A broker with one more listener, for clients with TLS."""
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
                f"PLAINTEXT:PLAINTEXT,{_LISTENER}:{client_protocol},{internal}:{protocol}"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(stores / "broker.pem"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(stores / "ca.pem"),
            f"listener.name.{internal.lower()}.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            _OPEN: given.get(_OPEN, "false"),
            "super.users": "User:ANONYMOUS;User:CN=broker",
        },
    )


def _grant(bootstrap: str) -> None:
    """Allow the user everything, by ACLs, whether it has logged in with a password, certificate or token."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    bindings = [
        AclBinding(
            kind,
            name,
            ResourcePatternType.LITERAL,
            principal,
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )
        for kind, name in _EVERYTHING
        for principal in (f"User:{_USER}", f"User:CN={_USER}", f"User:{SUBJECT}")
    ]
    for done in admin.create_acls(bindings, request_timeout=_TIMEOUT_S).values():
        done.result(_TIMEOUT_S)
