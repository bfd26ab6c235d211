"""Settings of OAUTHBEARER clients, and the messages of a token endpoint."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode

import pytest

from penstock.model.errors import InvalidConfig
from penstock.security.bearer_settings import (
    Token,
    TokenSettings,
    parse_response,
    parse_token,
    token_request,
    token_settings,
)

URL = "sasl.oauthbearer.token.endpoint.url"
ID = "sasl.oauthbearer.client.credentials.client.id"
SECRET = "sasl.oauthbearer.client.credentials.client.secret"


def jwt(**claims: object) -> str:
    def part(content: object) -> str:
        return urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    return f"{part({'alg': 'ES256'})}.{part(claims)}.c2ln"


def test_the_settings_of_java_clients() -> None:
    configs = {
        URL: "https://login.example/token",
        ID: "me",
        SECRET: "pw",
        "sasl.oauthbearer.scope": "kafka",
        "sasl.oauthbearer.header.urlencode": "true",
        "sasl.login.read.timeout.ms": "2500",
    }
    assert token_settings(configs.get) == TokenSettings(
        url="https://login.example/token",
        client_id="me",
        client_secret="pw",
        scope="kafka",
        encodes_credentials=True,
        timeout_s=2.5,
    )
    assert "pw" not in repr(token_settings(configs.get))


def test_the_options_of_the_login_module() -> None:
    module = (
        'org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required clientId="me" '
        'clientSecret="p w" scope="kafka" extension_logicalCluster="lkc-1" '
        'ssl.truststore.location="/etc/ca.pem";'
    )
    settings = token_settings({URL: "http://localhost/token", "sasl.jaas.config": module}.get)
    assert (settings.client_id, settings.client_secret, settings.scope) == ("me", "p w", "kafka")
    assert settings.extensions == (("logicalCluster", "lkc-1"),)
    assert settings.ca_file == "/etc/ca.pem"


def test_a_token_file_needs_no_client_id() -> None:
    assert token_settings({URL: "file:///run/token"}.get).is_file


@pytest.mark.parametrize(
    ("configs", "reason"),
    [
        ({}, "token.endpoint.url"),
        ({URL: "ftp://x/y"}, "token.endpoint.url"),
        ({URL: "https://x/y"}, "client.credentials.client.id"),
        ({URL: "https://x/y", ID: "me"}, "client.credentials.client.secret"),
        ({URL: "file:/t", "sasl.login.read.timeout.ms": "soon"}, "sasl.login.read.timeout.ms"),
        ({URL: "file:/t", "sasl.jaas.config": 'x required extension_auth="x";'}, "extension_auth"),
        ({URL: "file:/t", "sasl.jaas.config": 'x required extension_a1="x";'}, "extension_a1"),
        ({URL: "file:/t", "sasl.jaas.config": 'x required extension_a="\x01";'}, "extension_a"),
    ],
)
def test_incomplete_settings_are_refused(configs: dict[str, str], reason: str) -> None:
    with pytest.raises(InvalidConfig, match=reason):
        token_settings(configs.get)


def test_the_request_for_a_token() -> None:
    settings = TokenSettings(url="https://x/y", client_id="a:b", client_secret="c d", scope="x y")
    headers, body = token_request(settings)
    assert headers["Authorization"] == "Basic " + b64encode(b"a:b:c d").decode()
    assert body == b"grant_type=client_credentials&scope=x+y"
    encoded = TokenSettings(url="https://x/y", client_id="a:b", client_secret="c d", encodes_credentials=True)
    headers, body = token_request(encoded)
    assert headers["Authorization"] == "Basic " + b64encode(b"a%3Ab:c+d").decode()
    assert body == b"grant_type=client_credentials"


def test_a_token_has_the_expiry_and_the_subject_of_its_claims() -> None:
    token = jwt(exp=1_900_000_000, sub="me")
    assert parse_token(f" {token}\n") == Token(token, 1_900_000_000.0, "me")
    assert token not in repr(parse_token(token))


@pytest.mark.parametrize("text", ["opaque", "a.b.c", "a.b", jwt(exp="soon", sub=7), jwt() + "="])
def test_a_token_may_have_no_readable_claims(text: str) -> None:
    assert parse_token(text) == Token(text)


@pytest.mark.parametrize("text", ["", "two words", "a\x01b", "é", '"quoted"'])
def test_text_that_is_no_token_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ValueError, match=r"it is no bearer token$"):
        parse_token(text)


def test_the_response_of_an_endpoint() -> None:
    opaque = json.dumps({"access_token": "abc", "expires_in": 300}).encode()
    assert parse_response(opaque, 1000.0) == Token("abc", 1300.0)
    dated = jwt(exp=2000)
    # The claim is what the broker looks at.
    both = json.dumps({"access_token": dated, "expires_in": 300}).encode()
    assert parse_response(both, 1000.0) == Token(dated, 2000.0)


@pytest.mark.parametrize("content", [b"", b"<html>", b"[]", b'"x"', b"{}", b'{"access_token": 7}'])
def test_a_response_without_a_token_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="the response"):
        parse_response(content, 0.0)
