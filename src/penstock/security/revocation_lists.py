"""Certificate revocation lists (RFC 5280, section 5): which certificates their authorities have withdrawn.

OpenSSL verifies the signature of a list and checks certificates in the handshake. This module answers the
questions that Python's `ssl` cannot: whether the certificate of an open connection is on a list, and when the
lists expire. A list in a file of the operator is trusted without its signature here.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as BadBase64
from dataclasses import dataclass, field
from typing import Final

from penstock.security.der import SEQUENCE, certificate_fields, element, elements, time_of

__all__ = ["RevocationLists", "parse_revocation_lists"]

_BLOCK: Final = re.compile(
    r"-----BEGIN X509 CRL-----(?P<content>[A-Za-z0-9+/=\s]*)-----END X509 CRL-----", re.ASCII
)
_BEGIN: Final = re.compile(r"-----BEGIN (?P<kind>[^-]*)-----")
_KIND: Final = "X509 CRL"
_INTEGER: Final = 0x02
_TIMES: Final = (0x17, 0x18)


@dataclass(frozen=True, slots=True)
class RevocationLists:
    """The lists of one file."""

    #: the issuer and the serial number of each certificate, both as bytes of DER
    revoked: frozenset[tuple[bytes, bytes]] = field(repr=False)
    #: when the first of the lists expires, in seconds since 1970; None if none does
    expires_at: float | None
    #: the lists in PEM, without anything else that the file has
    pem: str = field(repr=False)

    def has(self, certificate: bytes) -> bool:
        """Whether a certificate in DER is on a list of its issuer. One that cannot be read counts as such."""
        try:
            fields = certificate_fields(certificate)
            return (fields[2][1], fields[0][1]) in self.revoked
        except (IndexError, ValueError):
            return True

    def is_expired(self, now_s: float) -> bool:
        return self.expires_at is not None and now_s >= self.expires_at


def parse_revocation_lists(text: str) -> RevocationLists:
    """The lists in PEM; ValueError if there is none, if one is malformed, or if there is anything else.

    Why nothing else: OpenSSL would trust a certificate in the file.
    """
    kinds = [found["kind"] for found in _BEGIN.finditer(text)]
    others = sorted({kind for kind in kinds if kind != _KIND})
    if others:
        raise ValueError(f"it has a {others[0]}, and may have revocation lists (X509 CRL) only")
    blocks = list(_BLOCK.finditer(text))
    if not blocks or len(blocks) != len(kinds):
        raise ValueError(
            "it has no revocation list in PEM that can be read (convert DER with `openssl crl -inform DER`)"
        )
    revoked: set[tuple[bytes, bytes]] = set()
    expiries = []
    for block in blocks:
        try:
            content = b64decode("".join(block["content"].split()), validate=True)
        except BadBase64:
            raise ValueError("a revocation list is not valid base64") from None
        expires_at = _parse(content, revoked)
        if expires_at is not None:
            expiries.append(expires_at)
    pem = "\n".join(block[0] for block in blocks) + "\n"
    return RevocationLists(frozenset(revoked), min(expiries, default=None), pem)


def _parse(content: bytes, revoked: set[tuple[bytes, bytes]]) -> float | None:
    """Add the certificates of one list; returns the time at which the list expires."""
    _, outer, _ = element(content, 0)
    _, signed, _ = element(outer, 0)
    fields = elements(signed)
    if fields and fields[0][0] == _INTEGER:
        del fields[0]
    # Signature algorithm, issuer, this update; the next update and the certificates may be missing.
    if len(fields) < 3 or fields[1][0] != SEQUENCE or fields[2][0] not in _TIMES:
        raise ValueError("a revocation list lacks its issuer or its time")
    issuer, rest = fields[1][1], fields[3:]
    expires_at = None
    if rest and rest[0][0] in _TIMES:
        expires_at = time_of(*rest[0])
        del rest[0]
    if rest and rest[0][0] == SEQUENCE:
        for _, entry in elements(rest[0][1]):
            tag, serial, _ = element(entry, 0)
            if tag != _INTEGER:
                raise ValueError("a revocation list has an entry without a serial number")
            revoked.add((issuer, serial))
    return expires_at
