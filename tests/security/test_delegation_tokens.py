"""SCRAM with a delegation token (KIP-48): the id is the user, the HMAC the password."""

from __future__ import annotations

import hmac
from base64 import b64encode

import pytest

from penstock.security.delegation_tokens import TokenLogin, token_hmac, token_password
from penstock.security.mechanism import Login
from penstock.security.mechanisms import mechanism_named
from penstock.security.sasl import Identity, SaslFailure, ServerSide, Step, Verification
from penstock.security.sasl_users import ConfiguredUsers

MECHANISM = "SCRAM-SHA-256"
KNOWN = {"id": TokenLogin("alice", token_password(b"secret", "id"), 77.0)}


class Tokens:
    def __init__(self, known: dict[str, TokenLogin]) -> None:
        self.known = known

    def find(self, token_id: str) -> TokenLogin | None:
        return self.known.get(token_id)


def exchange(tokens: Tokens | None, user: str, password: str, *, removed: str = "") -> Identity | str:
    """The outcome; the token `removed` ends during the exchange."""
    mechanism = mechanism_named(MECHANISM)
    users = ConfiguredUsers(mechanism, {}, lambda: None)
    server = mechanism.server(ServerSide(users, lambda: "SERVER", b"s" * 32, tokens=tokens))
    client = Login(mechanism, user, lambda: password, lambda: "CLIENT", is_delegated=True).begin()
    message: bytes | None = client.start()
    try:
        while message is not None:
            step = server.step(message)
            if isinstance(step, Verification):
                step = step.finish(step.work())
            assert isinstance(step, Step)
            message = client.step(step.reply)
            if tokens is not None:
                tokens.known.pop(removed, None)
    except SaslFailure as e:
        return str(e)
    assert isinstance(step, Step) and step.identity is not None
    return step.identity


def test_the_hmac_is_sha_512_of_the_id() -> None:
    assert token_hmac(b"secret", "id") == hmac.digest(b"secret", b"id", "sha512")
    assert token_password(b"secret", "id") == b64encode(token_hmac(b"secret", "id")).decode()


def test_the_login_is_of_the_owner_and_ends_with_the_token() -> None:
    found = exchange(Tokens(dict(KNOWN)), "id", KNOWN["id"].password)
    assert found == Identity("alice", 77.0, token_id="id")


@pytest.mark.parametrize(("user", "password"), [("id", "wrong"), ("other", KNOWN["id"].password)])
def test_an_unknown_token_and_a_wrong_hmac_look_the_same(user: str, password: str) -> None:
    assert exchange(Tokens(dict(KNOWN)), user, password) == "unknown user or wrong password"


def test_a_token_that_ends_during_the_exchange_is_refused() -> None:
    found = exchange(Tokens(dict(KNOWN)), "id", KNOWN["id"].password, removed="id")
    assert found == "unknown user or wrong password"


def test_tokens_are_refused_where_they_are_disabled() -> None:
    assert exchange(None, "id", KNOWN["id"].password) == "delegation tokens are disabled"
