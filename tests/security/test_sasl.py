"""The SASL mechanisms of the server: RFC 4616, 5802 and 7628, and the ways to get around them."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable

import pytest

from penstock.model.errors import InvalidConfig
from penstock.security import sasl_scram_exchange
from penstock.security.mechanism import Login
from penstock.security.mechanisms import mechanism_named, scrams
from penstock.security.sasl import (
    Exchange,
    Identity,
    SaslFailure,
    ServerSide,
    Step,
    TokenRefused,
    Users,
    Verification,
)
from penstock.security.sasl_client import LoginFailed
from penstock.security.sasl_scram import ScramCredential, ScramShape, new_credential
from penstock.security.sasl_scram_exchange import MESSAGE_MAX
from penstock.security.sasl_states import NEXT, Event, State
from penstock.security.sasl_users import ConfiguredUsers, StoredUsers, parse_jaas

SECRET = b"s" * 32


def new_exchange(
    mechanism: str,
    users: Users,
    *,
    nonce: Callable[[], str],
    secret: bytes,
    verify: Callable[[str], Identity] | None = None,
) -> Exchange:
    return mechanism_named(mechanism).server(ServerSide(users, nonce, secret, verify))


def exchange(mechanism: str, verify: Callable[[str], Identity] | None = None) -> Exchange:
    return new_exchange(mechanism, users_of(mechanism), nonce=lambda: "SERVER", secret=SECRET, verify=verify)


def users_of(mechanism: str, stored: StoredUsers | None = None, secret: bytes = SECRET) -> ConfiguredUsers:
    users = ConfiguredUsers(
        mechanism_named(mechanism), {"user_bob": "hunter2", "user_a,b=c": "x"}, lambda: stored
    )
    users.install(users.credentials(secret))
    return users


class Stored:
    """Users of the metadata."""

    def __init__(self, mechanism: str, credentials: dict[str, ScramCredential]) -> None:
        self._mechanism = mechanism
        self._credentials = credentials

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._credentials.get(user) if mechanism == self._mechanism else None

    def shapes(self, mechanism: str) -> Counter[ScramShape]:
        known = self._credentials.values() if mechanism == self._mechanism else ()
        return Counter(ScramShape(len(each.salt), each.iterations) for each in known)


def login(mechanism: str, user: str, password: str, server: Exchange | None = None) -> str:
    """The outcome of a whole exchange."""
    server = server or exchange(mechanism)
    client = Login(mechanism_named(mechanism), user, lambda: password, lambda: "CLIENT").begin()
    token: bytes | None = client.start()
    try:
        while token is not None:
            step = server.step(token)
            assert isinstance(step, Step)
            token = client.step(step.reply)
    except SaslFailure as e:
        return f"failed: {e}"
    assert isinstance(step, Step) and step.identity is not None
    return step.identity.name


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_user_with_the_right_password_is_authenticated(mechanism: str) -> None:
    assert login(mechanism, "bob", "hunter2") == "bob"
    assert login(mechanism, "a,b=c", "x") == "a,b=c"


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_an_unknown_user_and_a_wrong_password_look_the_same(mechanism: str) -> None:
    wrong, unknown = login(mechanism, "bob", "hunter3"), login(mechanism, "eve", "hunter3")
    assert wrong == unknown == "failed: unknown user or wrong password"


def reply(server: Exchange, token: bytes) -> bytes:
    step = server.step(token)
    assert isinstance(step, Step)
    return step.reply


def challenge(users: ConfiguredUsers, user: str, secret: bytes = SECRET) -> tuple[bytes, int]:
    """The salt and the iterations that a client sees."""
    server = new_exchange("SCRAM-SHA-256", users, nonce=lambda: "SERVER", secret=secret)
    _, salt, iterations = reply(server, b"n,,n=" + user.encode() + b",r=c").split(b",")
    return b64decode(salt[2:]), int(iterations[2:])


def test_an_unknown_user_has_the_same_salt_every_time() -> None:
    """All brokers have the same secret, and keep it over restarts, so `users` may be any broker's."""
    first, second = (challenge(users_of("SCRAM-SHA-256"), "eve") for _ in range(2))
    assert first == second
    assert first != challenge(users_of("SCRAM-SHA-256"), "mallory")
    assert first != challenge(users_of("SCRAM-SHA-256"), "eve", b"another secret")
    # And so do the users of the config.
    first, second = (challenge(users_of("SCRAM-SHA-256"), "bob") for _ in range(2))
    assert first == second


def test_an_unknown_user_looks_like_an_existing_one() -> None:
    """Salt size and iterations reveal nothing: other names have those of existing users, as often as they."""
    assert {len(salt) for salt, _ in (challenge(users_of("SCRAM-SHA-256"), u) for u in ("bob", "eve"))} == {
        18
    }
    credentials = {
        f"u{i}": ScramCredential(b"s" * (26 if i % 4 else 64), b"k" * 32, b"k" * 32, 8192 if i % 4 else 4096)
        for i in range(40)
    }
    users = ConfiguredUsers(
        mechanism_named("SCRAM-SHA-256"), {}, lambda: Stored("SCRAM-SHA-256", credentials)
    )
    seen = Counter((len(salt), i) for salt, i in (challenge(users, f"eve{n}") for n in range(400)))
    assert seen.keys() == {(26, 8192), (64, 4096)}
    assert 240 < seen[26, 8192] < 360, "three quarters of the users have this shape"
    # A new user of a known shape changes the shape of few other names.
    before = [challenge(users, f"eve{n}") for n in range(100)]
    credentials["new"] = credentials["u1"]
    assert sum(challenge(users, f"eve{n}") != old for n, old in enumerate(before)) < 6


def test_credentials_of_the_metadata_come_before_those_of_the_config() -> None:
    other = new_credential("sha256", "changed", b"salt", 4096)
    users = users_of("SCRAM-SHA-256", Stored("SCRAM-SHA-256", {"bob": other}))
    server = new_exchange("SCRAM-SHA-256", users, nonce=lambda: "SERVER", secret=SECRET)
    assert login("SCRAM-SHA-256", "bob", "changed", server) == "bob"


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"bob\0hunter2",
        b"\0bob\0hunter2\0",
        b"\0bob\0",
        b"\0\0hunter2",
        b"\0\xff\0hunter2",
        b"eve\0bob\0hunter2",  # authzid is not the user (CVE-2017-12610)
        b"\0bob\0hunter2 ",
    ],
)
def test_plain_refuses(token: bytes) -> None:
    with pytest.raises(SaslFailure):
        exchange("PLAIN").step(token)


@pytest.mark.parametrize(
    "token",
    [
        b"",
        b"n=bob,r=c",
        b"p=tls-unique,,n=bob,r=c",
        b"n,a=eve,n=bob,r=c",
        b"n,,n=b=ob,r=c",
        b"n,,n=\xff,r=c",
        b"n,,n=bob,r=",
        b"n,,n=bob,r=c,tokenauth=true",
        b"n,,m=ext,n=bob,r=c",
    ],
)
def test_scram_refuses_a_first_message(token: bytes) -> None:
    with pytest.raises(SaslFailure):
        exchange("SCRAM-SHA-256").step(token)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(
    ("before", "after"),
    [(b"n,,n=", b",r=c"), (b"n,,n=bob,r=", b""), (b"n,,n=bob,r=c,x=", b"")],
    ids=["user", "nonce", "extension"],
)
def test_a_long_scram_message_is_refused_before_anything_is_kept(
    mechanism: str, before: bytes, after: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that is not authenticated made the broker keep and hash half a megabyte."""
    fits = MESSAGE_MAX - len(before) - len(after)
    assert reply(exchange(mechanism), before + b"x" * fits + after).startswith(b"r=")
    monkeypatch.setattr(sasl_scram_exchange, "fake_credential", None)
    server = exchange(mechanism)
    with pytest.raises(SaslFailure, match="limit 1024"):
        server.step(before + b"x" * (fits + 1) + after)


def test_a_user_name_of_255_bytes_fits_even_if_all_of_it_is_escaped() -> None:
    name = "," * 255
    users = ConfiguredUsers(mechanism_named("SCRAM-SHA-512"), {f"user_{name}": "x"}, lambda: None)
    users.install(users.credentials(SECRET))
    server = new_exchange("SCRAM-SHA-512", users, nonce=lambda: "SERVER" * 5, secret=SECRET)
    assert login("SCRAM-SHA-512", name, "x", server) == name


class _Replaced:
    """A server's exchange whose last token is changed on the way."""

    claimed = ""

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        self._server = exchange("SCRAM-SHA-256")
        self._change = change
        self._count = 0

    message_max = 1024

    def step(self, token: bytes) -> Step | Verification:
        self._count += 1
        return self._server.step(self._change(token) if self._count == 2 else token)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        # A nonce that only begins like that of the exchange (CVE-2024-56128), or none of the server's.
        (lambda token: token.replace(b"r=CLIENTSERVER", b"r=CLIENTSERVER1"), "nonce"),
        (lambda token: token.replace(b"r=CLIENTSERVER", b"r=CLIENT"), "nonce"),
        (lambda token: token.replace(b"c=biws", b"c=eSws"), "channel binding"),
        (lambda token: token[:-6] + b"AAAAA=", "password"),
        (lambda token: token[: token.index(b",p=")], "malformed"),
        (lambda token: token[: token.index(b",p=")] + b",p=AAAA", "password"),
        (lambda token: token[: token.index(b",p=")] + b",p=====", "malformed"),
    ],
)
def test_scram_refuses_a_last_message(change: Callable[[bytes], bytes], reason: str) -> None:
    outcome = login("SCRAM-SHA-256", "bob", "hunter2", _Replaced(change))
    assert outcome.startswith("failed") and reason in outcome


def test_a_client_refuses_a_server_that_does_not_know_the_password() -> None:
    client = Login(mechanism_named("SCRAM-SHA-256"), "bob", lambda: "hunter2", lambda: "CLIENT").begin()
    client.step(b"r=CLIENTx,s=" + b64encode(b"salt") + b",i=4096")
    with pytest.raises(LoginFailed):
        client.step(b"v=" + b64encode(bytes(32)))


@pytest.mark.parametrize(
    "challenge", [b"r=CLIENT,s=AAAA,i=4096", b"r=OTHER,s=AAAA,i=4096", b"r=CLIENTx,s=AAAA,i=1", b""]
)
def test_a_client_refuses_a_first_message(challenge: bytes) -> None:
    client = Login(mechanism_named("SCRAM-SHA-256"), "bob", lambda: "hunter2", lambda: "CLIENT").begin()
    with pytest.raises(LoginFailed):
        client.step(challenge)


def verified(server: Exchange, token: bytes) -> Step:
    """The step of a bearer token, whose verification takes long."""
    step = server.step(token)
    assert isinstance(step, Verification)
    try:
        return step.finish(step.work())
    except TokenRefused as e:
        return step.finish(e)


def test_large_messages_are_refused_first() -> None:
    def verify(token: str) -> Identity:
        raise AssertionError

    for size, reason in ((64 << 10, "a token of"), (500_000, "an OAUTHBEARER message of")):
        with pytest.raises(SaslFailure, match=reason):
            exchange("OAUTHBEARER", verify).step(b"n,,\x01auth=Bearer a" + b"x" * size + b"\x01\x01")
    assert exchange("PLAIN").message_max < 10_000


def test_a_user_that_is_revoked_between_two_messages_is_refused() -> None:
    """The removal of a credential ends the sessions that exist; this one is about to begin."""
    mechanism = "SCRAM-SHA-256"
    credentials = {"eve": new_credential(scrams()[mechanism].hash, "secret", b"salt" * 4, 4096)}
    users = users_of(mechanism, Stored(mechanism, credentials))
    server = new_exchange(mechanism, users, nonce=lambda: "SERVER", secret=SECRET)
    client = Login(mechanism_named(mechanism), "eve", lambda: "secret", lambda: "CLIENT").begin()
    first = server.step(client.start())
    assert isinstance(first, Step)
    final = client.step(first.reply)
    assert final is not None
    credentials.clear()
    with pytest.raises(SaslFailure, match="unknown user"):
        server.step(final)


def test_a_bearer_token_that_is_refused_gets_a_challenge_first() -> None:
    def refuse(token: str) -> Identity:
        raise TokenRefused("expired")

    server = exchange("OAUTHBEARER", refuse)
    assert verified(server, b"n,,\x01auth=Bearer abc\x01\x01").reply == b'{"status":"invalid_token"}'
    with pytest.raises(SaslFailure, match="expired"):
        server.step(b"\x01")


def test_bytes_without_a_token_are_refused_in_linear_time() -> None:
    """A pattern that matched the pairs around the token took 8 minutes for a message of this size."""

    def verify(token: str) -> Identity:
        raise AssertionError

    with pytest.raises(SaslFailure):
        exchange("OAUTHBEARER", verify).step(b"n,," + b"\x01auth=bearer a" * (512 * 1024 // 15))


def test_a_bearer_token_is_verified() -> None:
    def verify(token: str) -> Identity:
        return Identity(token.upper(), 12.0, ("g",))

    step = verified(exchange("OAUTHBEARER", verify), b"n,a=ABC,\x01auth=Bearer abc\x01ext=1\x01\x01")
    assert step.identity == Identity("ABC", 12.0, ("g",))
    for token in (b"n,a=eve,\x01auth=Bearer abc\x01\x01", b"n,,\x01\x01", b"\x01auth=Bearer abc\x01\x01"):
        with pytest.raises(SaslFailure):
            verified(exchange("OAUTHBEARER", verify), token)


def test_secrets_are_not_in_texts() -> None:
    users = users_of("PLAIN")
    assert "hunter2" not in repr(users)
    assert "hunter2" not in repr(Login(mechanism_named("PLAIN"), "bob", lambda: "hunter2", lambda: ""))
    with pytest.raises(InvalidConfig) as refused:
        parse_jaas('password="hunter2"')
    assert "hunter2" not in str(refused.value)


def test_jaas_in_kafkas_form() -> None:
    text = 'org.x.PlainLoginModule required\n username="a" password="p;\\"q" user_a=p ;'
    assert parse_jaas(text) == {"username": "a", "password": 'p;"q', "user_a": "p"}


def test_every_event_outside_the_table_is_illegal() -> None:
    legal = {
        State.START: {Event.API_VERSIONS, Event.HANDSHAKE, Event.HANDSHAKE_RAW},
        State.HANDSHAKE: {Event.HANDSHAKE, Event.HANDSHAKE_RAW},
        State.TOKENS: {Event.AUTHENTICATE, Event.COMPLETE},
        State.RAW: {Event.RAW_TOKEN, Event.COMPLETE},
        State.DONE: {Event.HANDSHAKE},
    }
    assert {state: {e for s, e in NEXT if s is state} for state in State} == legal


def test_a_stored_credential_is_no_password() -> None:
    credential = new_credential("sha512", "hunter2", b"salt", 4096)
    assert isinstance(credential, ScramCredential)
    assert b"hunter2" not in b"".join((credential.salt, credential.stored_key, credential.server_key))
