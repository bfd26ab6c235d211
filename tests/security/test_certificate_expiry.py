"""The end of a certificate's validity, read from its DER."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from penstock.security.tls_names import expiry_of


def certificate(end: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(end - timedelta(days=30))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    found: bytes = made.public_bytes(serialization.Encoding.DER)
    return found


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 2500])
def test_both_forms_of_time(year: int) -> None:
    """RFC 5280: UTCTime until 2049, GeneralizedTime from 2050 on."""
    end = datetime(year, 11, 17, 1, 2, 3, tzinfo=UTC)
    assert expiry_of(certificate(end)) == end.timestamp()


def test_bytes_that_are_no_certificate() -> None:
    with pytest.raises(ValueError):
        expiry_of(b"\x30\x02\x30\x00")
