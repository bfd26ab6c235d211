"""Principals, and the canonical form of addresses."""

from __future__ import annotations

import pytest

from penstock.model.errors import InvalidConfig
from penstock.security.principal import ANONYMOUS, Principal, Session, canonical_address, parse_principal


def test_the_text_of_a_principal_is_kafkas() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert parse_principal("User:CN=broker-1,O=x:y") == Principal("User", "CN=broker-1,O=x:y")


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:"])
def test_a_principal_needs_a_type_and_a_name(text: str) -> None:
    with pytest.raises(InvalidConfig, match="TYPE:NAME"):
        parse_principal(text)


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("::FFFF:0a01:0203", "10.1.2.3"),
        ("2001:DB8:0:0:0:0:0:7", "2001:db8::7"),
        ("fe80::1%eth0", "fe80::1"),
        ("::1", "::1"),
        ("?", "?"),
        ("simulated:9092", "simulated:9092"),
    ],
)
def test_addresses_have_one_spelling(given: str, canonical: str) -> None:
    assert canonical_address(given) == canonical


def test_a_session_is_anonymous_until_it_is_authenticated() -> None:
    session = Session(listener="PLAINTEXT", host="127.0.0.1")
    assert session.principal is ANONYMOUS
    assert session.expires_at is None
