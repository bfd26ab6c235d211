"""A secured simulated cluster: SASL_SSL for clients, mutual TLS between nodes, ACLs, and encrypted disks.

TLS runs over memory BIOs, so the code is that of a real broker. Keys and certificates are computed from fixed
bytes with Ed25519, whose signatures have one length: a seed has the same sizes of all messages in every run.

Not simulated: the time that handshakes take, and the randomness inside OpenSSL. Certificates are valid by the
real clock, whatever the simulated one shows.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from hashlib import sha256
from random import Random
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from penstock.net.client_security import ClientSecurity

__all__ = ["CLIENT_LISTENER", "Securities", "new_securities", "secured_settings"]

CLIENT_LISTENER: Final = "SASL_SSL"
_USER: Final = "client"
_PASSWORD: Final = "simulated"
_MECHANISM: Final = "SCRAM-SHA-256"
_NODES_MAX: Final = 9
_VALID: Final = (datetime(2020, 1, 1, tzinfo=UTC), datetime(2120, 1, 1, tzinfo=UTC))


class _Certificates(NamedTuple):
    authority: str
    node_key: str
    node: str


@cache
def _certificates() -> _Certificates:
    """The certificate of an authority, and a key and certificate that all nodes and operators share."""
    from cryptography import x509

    hosts = [x509.DNSName(f"node-{number}") for number in range(1, _NODES_MAX + 1)]
    signer, key = _key("authority"), _key("node")
    authority = _signed("authority", 1, signer, signer, [x509.BasicConstraints(ca=True, path_length=0)])
    node = _signed("node", 2, key, signer, [x509.SubjectAlternativeName(hosts)])
    return _Certificates(_pem(authority), _key_pem(key), _pem(node))


def _key(name: str) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(sha256(name.encode()).digest())


def _signed(name: str, number: int, key: Any, signer: Any, extensions: list[Any]) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    def named(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    builder = x509.CertificateBuilder().subject_name(named(name)).issuer_name(named("authority"))
    builder = builder.public_key(key.public_key()).serial_number(number)
    builder = builder.not_valid_before(_VALID[0]).not_valid_after(_VALID[1])
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(signer, None)


def _pem(certificate: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    encoded: bytes = certificate.public_bytes(Encoding.PEM)
    return encoded.decode()


def _key_pem(key: Any) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    encoded: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return encoded.decode()


def secured_settings() -> dict[str, str]:
    """The settings that all nodes have, beside their listeners."""
    made = _certificates()
    return {
        "listener.security.protocol.map": f"{CLIENT_LISTENER}:SASL_SSL,INTERNAL:SSL",
        "ssl.keystore.key": made.node_key,
        "ssl.keystore.certificate.chain": made.node,
        "ssl.truststore.certificates": made.authority,
        "listener.name.internal.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": _MECHANISM,
        "sasl.jaas.config": f'x required user_{_USER}="{_PASSWORD}";',
        "connections.max.reauth.ms": "2500",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:CN=node",
        "allow.everyone.if.no.acl.found": "true",
        "penstock.encryption.keys": f"simulated:{b64encode(bytes(32)).decode()}",
    }


class Securities(NamedTuple):
    """How clients of a run connect, by listener."""

    client: ClientSecurity
    node: ClientSecurity


def new_securities(rng: Random) -> Securities:
    """The security of one client; nonces are from `rng`."""
    from penstock.net.client_security import client_security

    made = _certificates()
    login = {
        "ssl.truststore.certificates": made.authority,
        "sasl.jaas.config": f'x required username="{_USER}" password="{_PASSWORD}";',
    }
    identity = {
        "ssl.truststore.certificates": made.authority,
        "ssl.keystore.key": made.node_key,
        "ssl.keystore.certificate.chain": made.node,
    }
    nonce: Callable[[], str] = lambda: b64encode(rng.randbytes(18)).decode()  # noqa: E731
    client = client_security("SASL_SSL", login.get, nonce, mechanism=_MECHANISM)
    node = client_security("SSL", identity.get, nonce)
    assert client is not None and node is not None
    return Securities(client, node)
