"""Tokens of a client: retrieved when due, shared by connections, never sent to another address."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.net.token_source import CallbackTokens, TokenCallback, TokenSource
from penstock.security.bearer_settings import token_settings
from penstock.security.mechanism import Login
from penstock.security.sasl_bearer import OAUTHBEARER
from penstock.security.sasl_client import KeyNeeded, LoginFailed, SaltedPasswords
from tests.tokens import CLIENT, TokenIssuer


@pytest.fixture(scope="module")
def endpoint() -> Iterator[TokenIssuer]:
    made = TokenIssuer()
    yield made
    made.close()


@pytest.fixture
def issuer(endpoint: TokenIssuer) -> TokenIssuer:
    endpoint.forms.clear()
    endpoint.answer, endpoint.lasts_s = None, 600.0
    return endpoint


class Clock:
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        import time

        return time.time() + self.ahead_s


def test_a_token_is_used_for_most_of_its_lifetime(issuer: TokenIssuer) -> None:
    clock = Clock()
    source = TokenSource(token_settings(issuer.client(scope="kafka").get), now=clock)
    assert source.current() is None
    first = source.fetch()
    assert source.current() == source.fetch() == first
    assert issuer.forms == [{"grant_type": ["client_credentials"], "scope": ["kafka"]}]
    clock.ahead_s = 470.0
    assert source.current() == first
    clock.ahead_s = 490.0
    assert source.current() is None, "80 % of 600 s have passed"
    assert source.fetch() != first


def test_a_refused_token_is_not_used_again(issuer: TokenIssuer) -> None:
    source = TokenSource(token_settings(issuer.client().get))
    source.fetch()
    source.discard()
    assert source.current() is None
    source.fetch()
    assert len(issuer.forms) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((401, {}, b'{"error": "invalid_client"}'), "answered 401: invalid_client"),
        ((500, {}, b"<html>"), "answered 500$"),
        ((302, {"Location": "http://127.0.0.1:1/elsewhere"}, b""), "answered 302$"),
        ((200, {}, b"<html>"), "the response is not JSON"),
        ((200, {}, b'{"access_token": "' + b"x" * (1 << 20) + b'"}'), "larger than"),
    ],
)
def test_an_endpoint_without_a_token(
    issuer: TokenIssuer, answer: tuple[int, dict[str, str], bytes], reason: str
) -> None:
    issuer.answer = answer
    with pytest.raises(LoginFailed, match=reason):
        TokenSource(token_settings(issuer.client().get)).fetch()
    assert len(issuer.forms) == 1, "a redirection is not followed: it would carry the secret elsewhere"


def test_an_endpoint_that_is_gone() -> None:
    configs = {
        "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/token",
        "sasl.jaas.config": 'x required clientId="a" clientSecret="b";',
    }
    with pytest.raises(LoginFailed, match=r"no token from http://127.0.0.1:1/token"):
        TokenSource(token_settings(configs.get)).fetch()


def test_an_endpoint_that_does_not_speak_http() -> None:
    def greet() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(b"SSH-2.0-server\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=greet)
        thread.start()
        configs = {
            "sasl.oauthbearer.token.endpoint.url": f"http://127.0.0.1:{server.getsockname()[1]}/token",
            "sasl.jaas.config": 'x required clientId="a" clientSecret="b";',
        }
        with pytest.raises(LoginFailed, match=r"no token from http://127\.0\.0\.1:.*SSH-2\.0-server"):
            TokenSource(token_settings(configs.get)).fetch()
        thread.join()


def test_a_token_file_is_read_again_when_the_token_is_due(issuer: TokenIssuer, tmp_path: Path) -> None:
    file, clock = tmp_path / "token", Clock()
    configs = {"sasl.oauthbearer.token.endpoint.url": file.as_uri()}
    source = TokenSource(token_settings(configs.get), now=clock)
    with pytest.raises(LoginFailed, match="No such file"):
        source.fetch()
    file.write_text(issuer.sign() + "\n")
    first = source.fetch()
    file.write_text(issuer.sign(sub="other"))
    assert source.fetch() == first
    clock.ahead_s = 500.0
    assert source.fetch() != first
    clock.ahead_s = 5000.0
    with pytest.raises(LoginFailed, match="has expired"):
        source.fetch()


def test_a_login_waits_for_its_token_outside_of_the_event_loop(issuer: TokenIssuer) -> None:
    source = TokenSource(token_settings(issuer.client().get))
    login = Login(OAUTHBEARER, CLIENT, str, str, SaltedPasswords(deferred=True), source)
    client = login.begin()
    with pytest.raises(KeyNeeded) as needed:
        client.start()
    assert not issuer.forms
    needed.value.compute()
    first = client.start()
    assert first.startswith(b"n,,\x01auth=Bearer ey") and first.endswith(b"\x01\x01")
    assert client.step(b"") is None
    assert login.begin().start() == first, "the next connection uses the same token"
    assert client.step(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(KeyNeeded):
        login.begin().start()


def test_the_failure_to_get_a_token_ends_the_login(issuer: TokenIssuer) -> None:
    issuer.answer = 400, {}, b""
    source = TokenSource(token_settings(issuer.client().get))
    client = Login(OAUTHBEARER, CLIENT, str, str, SaltedPasswords(deferred=True), source).begin()
    with pytest.raises(KeyNeeded) as needed:
        client.start()
    needed.value.compute()
    with pytest.raises(LoginFailed, match="answered 400"):
        client.start()


def test_extensions_follow_the_token(issuer: TokenIssuer) -> None:
    configs = {**issuer.client(), "sasl.jaas.config": 'x required extension_traceId="7";'}
    source = TokenSource(token_settings(configs.get))
    first = Login(OAUTHBEARER, CLIENT, str, str, None, source).begin().start()
    assert first.endswith(b"\x01traceId=7\x01\x01")


def test_the_callback_of_librdkafka_can_be_pickled(issuer: TokenIssuer, tmp_path: Path) -> None:
    """Spark sends the settings of its sink to workers."""
    file = tmp_path / "token"
    file.write_text(issuer.sign(exp=1_900_000_000))
    settings = token_settings({"sasl.oauthbearer.token.endpoint.url": file.as_uri()}.get)
    callback = pickle.loads(pickle.dumps(TokenCallback(settings)))
    assert callback("") == (file.read_text(), 1_900_000_000.0, CLIENT, {})


def test_tokens_of_a_function() -> None:
    given: list[str] = []

    def oauth_cb(config: str) -> tuple[str, float]:
        given.append(config)
        if len(given) > 1:
            raise RuntimeError("no more")
        return "abc", 0.0

    tokens = CallbackTokens(oauth_cb, "principal=me")
    assert (tokens.fetch(), given) == ("abc", ["principal=me"])
    with pytest.raises(LoginFailed, match="oauth_cb has failed: no more"):
        tokens.fetch()
