"""Makes a certificate authority and certificates, for `penstock cluster start --secure` and for tests.

Needs the extra `security`. Keys are ECDSA on P-256: a handshake costs a fraction of one with RSA.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any, Final, NamedTuple

from penstock.model.errors import PenstockError
from penstock.model.installation import pip_install

__all__ = ["AUTHORITY_DAYS", "CERTIFICATE_DAYS", "Issued", "issue", "new_authority"]

AUTHORITY_DAYS: Final = 3650
CERTIFICATE_DAYS: Final = 397
#: a certificate is valid from this much before its creation: clocks differ
_EARLIER: Final = timedelta(minutes=10)


class Issued(NamedTuple):
    """A certificate and its private key, in PEM."""

    certificate: str
    key: str

    @property
    def keystore(self) -> str:
        """The content of `ssl.keystore.location`."""
        return self.key + self.certificate

    def __repr__(self) -> str:
        return "Issued(…)"


def _library() -> Any:
    try:
        from cryptography import x509
    except ImportError:
        raise PenstockError(
            f"making certificates needs cryptography: install it with `{pip_install('security')}`"
        ) from None
    return x509


def new_authority(name: str, now: datetime, days: int = AUTHORITY_DAYS) -> Issued:
    """A new certificate authority that signs itself."""
    x509 = _library()
    key = _new_key()
    subject = _name(name)
    builder = _builder(subject, subject, key.public_key(), now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=True), critical=True)
    return _signed(builder, key, key)


def issue(
    authority: Issued,
    name: str,
    now: datetime,
    *,
    hosts: Sequence[str] = (),
    days: int = CERTIFICATE_DAYS,
    server: bool = True,
    client: bool = True,
) -> Issued:
    """A certificate for the common name `name`, valid for `hosts`, which are names or addresses.

    `server` and `client` are the roles that it may be used in.
    """
    x509 = _library()
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import ExtendedKeyUsageOID

    signing_key: Any = load_pem_private_key(authority.key.encode(), None)
    signer = x509.load_pem_x509_certificate(authority.certificate.encode())
    key = _new_key()
    builder = _builder(_name(name), signer.subject, key.public_key(), now, days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_usage(signs_certificates=False), critical=True)
    roles = [ExtendedKeyUsageOID.SERVER_AUTH] * server + [ExtendedKeyUsageOID.CLIENT_AUTH] * client
    builder = builder.add_extension(x509.ExtendedKeyUsage(roles), critical=False)
    if hosts:
        names = x509.SubjectAlternativeName([_host(x509, host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
    )
    return _signed(builder, signing_key, key)


def _new_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    return generate_private_key(SECP256R1())


def _name(name: str) -> Any:
    x509 = _library()
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(x509: Any, host: str) -> Any:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs_certificates: bool) -> Any:
    return _library().KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(subject: Any, issuer: Any, public_key: Any, now: datetime, days: int) -> Any:
    x509 = _library()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
    )


def _signed(builder: Any, signing_key: Any, key: Any) -> Issued:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    certificate = builder.sign(signing_key, SHA256())
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Issued(certificate.public_bytes(Encoding.PEM).decode(), private.decode())
