"""Certificate revocation lists (RFC 5280, section 5)."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pytest

from penstock.security.revocation_lists import parse_revocation_lists
from tests.revocation import Authority


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = Authority(tmp_path_factory.mktemp("authority"))
    made.issue("alice", "bob")
    return made


def test_revoked_certificates_are_found(authority: Authority) -> None:
    lists = parse_revocation_lists(authority.list("alice"))
    assert (lists.has(authority.der("alice")), lists.has(authority.der("bob"))) == (True, False)
    assert lists.expires_at is not None and not lists.is_expired(time.time())
    assert lists.is_expired(lists.expires_at)


def test_the_serial_number_of_another_issuer_is_another_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path)
    other._authority = authority._authority
    lists = parse_revocation_lists(authority.list("alice"))
    (entry,) = lists.revoked
    assert entry[1] in authority.der("alice")
    assert (b"another issuer", entry[1]) not in lists.revoked


def test_several_lists_expire_with_the_first(authority: Authority) -> None:
    soon = authority.list("alice", lasts=timedelta(hours=1))
    lists = parse_revocation_lists(authority.list("bob") + soon)
    assert lists.has(authority.der("alice")) and lists.has(authority.der("bob"))
    assert lists.is_expired(time.time() + 3600)


def test_a_certificate_that_cannot_be_read_counts_as_revoked(authority: Authority) -> None:
    lists = parse_revocation_lists(authority.list())
    assert lists.has(b"") and lists.has(b"\x30\x80") and not lists.has(authority.der("bob"))


def test_nothing_but_lists_is_accepted(authority: Authority) -> None:
    """OpenSSL would trust a certificate in the file."""
    with pytest.raises(ValueError, match="it has a CERTIFICATE"):
        parse_revocation_lists(authority.list() + authority.file("ca").read_text())
    for text in ("", "x", "-----BEGIN X509 CRL-----\n", authority.list().replace("A", "*", 1)):
        with pytest.raises(ValueError, match="revocation list"):
            parse_revocation_lists(text)


def test_garbage_is_an_error_and_no_empty_list(authority: Authority) -> None:
    content = authority.list("alice")
    lines = content.splitlines(keepends=True)
    for cut in range(2, len(lines) - 1):
        damaged = "".join([*lines[:cut], lines[-1]])
        with pytest.raises(ValueError):
            parse_revocation_lists(damaged)
