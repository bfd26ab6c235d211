"""An authority that revokes certificates, for tests."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from penstock.security.certificates import Issued, issue, new_authority

HOSTS = ["localhost", "127.0.0.1"]


class Authority:
    """An authority, the stores of the certificates that it issues, and its revocation list."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("cryptography")
        self.folder = folder
        self.now = datetime.now(UTC)
        self._authority = new_authority("revoking authority", self.now)
        self._issued: dict[str, Issued] = {}
        self.file("ca").write_text(self._authority.certificate)

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def issue(self, *names: str) -> None:
        for name in names:
            self._issued[name] = issue(self._authority, name, self.now, hosts=HOSTS)
            self.file(name).write_text(self._issued[name].keystore)
            self.file(name).chmod(0o600)

    def der(self, name: str) -> bytes:
        return ssl.PEM_cert_to_DER_cert(self._issued[name].certificate)

    def client(self, name: str) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=self.file("ca"))
        context.load_cert_chain(self.file(name))
        return context

    def list(self, *revoked: str, age: timedelta = timedelta(), lasts: timedelta = timedelta(days=7)) -> str:
        """A list of the certificates that are revoked, in PEM."""
        from cryptography import x509
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

        issuer = x509.load_pem_x509_certificate(self._authority.certificate.encode())
        made = self.now - timedelta(minutes=1) - age
        builder = x509.CertificateRevocationListBuilder().issuer_name(issuer.subject)
        builder = builder.last_update(made).next_update(made + lasts)
        for name in revoked:
            serial = x509.load_pem_x509_certificate(self._issued[name].certificate.encode()).serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(made).build()
            builder = builder.add_revoked_certificate(entry)
        key = load_pem_private_key(self._authority.key.encode(), None)
        signed = builder.sign(key, SHA256())  # type: ignore[arg-type,unused-ignore]
        content: str = signed.public_bytes(Encoding.PEM).decode()
        return content

    def publish(self, content: str) -> Path:
        """Replace the file of the list at once, as tools that fetch lists do."""
        new = self.folder / "crl.new"
        new.write_text(content)
        return new.rename(self.file("crl"))
