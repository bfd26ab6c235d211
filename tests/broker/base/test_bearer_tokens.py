"""Bearer tokens: what is accepted, and the forgeries that are not."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.base.bearer_tokens import BearerTokens
from penstock.model.errors import InvalidConfig, PenstockError
from penstock.security.sasl import Identity, TokenRefused
from tests.broker.events import Events
from tests.secured import HOST, pki

jwt = pytest.importorskip("jwt")
pytest.importorskip("cryptography")


async def in_thread(function: Any, *args: Any) -> Any:
    return function(*args)


class Issuer:
    """Signs tokens, and has a file with its public key."""

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

        self.key = generate_private_key(SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        self.file = folder / "jwks.json"
        self.file.write_text(json.dumps({"keys": [{**public, "kid": "k1"}]}))
        self.expires = int(time.time()) + 600

    def sign(self, kid: str = "k1", **claims: object) -> str:
        content = {"sub": "bob", "iss": "us", "aud": "broker", "exp": self.expires, **claims}
        content = {name: value for name, value in content.items() if value is not None}
        token: str = jwt.encode(content, self.key, algorithm="ES256", headers={"kid": kid})
        return token

    def tokens(self, **configs: str) -> BearerTokens:
        lookup: Mapping[str, str] = {
            "sasl.oauthbearer.jwks.endpoint.url": self.file.as_uri(),
            "sasl.oauthbearer.expected.issuer": "us",
            "sasl.oauthbearer.expected.audience": "broker,other",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms": "3600000",
            **{name.replace("_", "."): value for name, value in configs.items()},
        }
        tokens = BearerTokens(lookup.get, in_thread)
        asyncio.run(tokens.load())
        return tokens


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


def test_a_valid_token_has_name_expiry_and_groups(issuer: Issuer) -> None:
    token = issuer.sign(groups=["dev", 7, "ops"])
    assert issuer.tokens().verify(token) == Identity("bob", float(issuer.expires), ("dev", "ops"))


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": 1},
        {"exp": None},
        {"iss": "them"},
        {"iss": None},
        {"aud": "elsewhere"},
        {"aud": None},
        {"sub": None},
        {"sub": ""},
        {"kid": "k2"},
        {"nbf": 1 << 40},
    ],
)
def test_tokens_that_are_refused(issuer: Issuer, claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        issuer.tokens().verify(issuer.sign(**claims))


def test_forged_tokens_are_refused(issuer: Issuer, tmp_path: Path) -> None:
    tokens, content = issuer.tokens(), {"sub": "bob", "iss": "us", "aud": "broker", "exp": issuer.expires}
    unsigned = jwt.encode(content, None, algorithm="none", headers={"kid": "k1"})
    shared = jwt.encode(content, b"x" * 64, algorithm="HS256", headers={"kid": "k1"})
    other = Issuer(tmp_path).sign()
    head, body, _ = issuer.sign().split(".")
    for token in (unsigned, shared, other, f"{head}.{body}.", "nonsense", ""):
        with pytest.raises(TokenRefused):
            tokens.verify(token)


@pytest.mark.parametrize(
    "claims",
    [{"exp": 10**400}, {"exp": "x"}, {"exp": []}, {"nbf": {}}, {"aud": 7}],
    ids=["huge number", "text", "list", "object", "number"],
)
def test_claims_of_unexpected_types_are_refused(issuer: Issuer, claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        issuer.tokens().verify(issuer.sign(**claims))


def test_json_that_is_nested_too_deep_is_refused(issuer: Issuer) -> None:
    """An unauthenticated client chooses the header."""
    for nested in (b"[" * 100_000, b'{"kid":' * 100_000):
        header = base64.urlsafe_b64encode(nested).rstrip(b"=").decode()
        with pytest.raises(TokenRefused):
            issuer.tokens().verify(f"{header}.e30.c2ln")


def test_errors_of_older_libraries_are_refusals(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = issuer.tokens()
    for error in (RecursionError, OverflowError, KeyError, TypeError, ValueError):

        def fail(token: str, error: type[Exception] = error) -> None:
            raise error("part of the token")

        monkeypatch.setattr("penstock.broker.base.bearer_tokens._header", fail)
        with pytest.raises(TokenRefused, match=error.__name__) as refused:
            tokens.verify("a.b.c")
        assert "part" not in str(refused.value)


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize(
    "value",
    [
        1e18,
        10**18,
        253_402_300_800,
        float("inf"),
        float("nan"),
        -1,
        -1e300,
        "1900000000",
        True,
        None,
        [1],
        {},
    ],
    ids=str,
)
def test_expiry_times_out_of_range_are_refused(issuer: Issuer, claim: str, value: object) -> None:
    """A token that expires in the year 31,688,739,847 is one that does not expire."""
    content = {"sub": "bob", "iss": "us", "aud": "broker", "exp": issuer.expires, claim: value}
    # Not by PyJWT's encoder, which refuses some of them itself.
    body = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=")
    header = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"k1"}').rstrip(b"=")
    algorithm = jwt.algorithms.get_default_algorithms()["ES256"]
    signed = header + b"." + body
    signature = base64.urlsafe_b64encode(algorithm.sign(signed, issuer.key)).rstrip(b"=")
    with pytest.raises(TokenRefused):
        issuer.tokens().verify((signed + b"." + signature).decode())


def test_a_token_is_decoded_once(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its header, which is small, selects the key; then the whole of it is decoded and verified."""
    tokens, token = issuer.tokens(), issuer.sign(padding="x" * 40_000)
    decoded: list[int] = []
    real = jwt.api_jws.base64url_decode

    def counted(value: Any) -> bytes:
        decoded.append(len(value))
        return bytes(real(value))

    monkeypatch.setattr(jwt.api_jws, "base64url_decode", counted)
    assert tokens.verify(token).name == "bob"
    assert sum(decoded) < len(token)


def test_a_large_header_is_refused_before_it_is_parsed(issuer: Issuer) -> None:
    header = base64.urlsafe_b64encode(b'{"kid":"k1","x":"' + b"x" * 10_000 + b'"}').rstrip(b"=").decode()
    with pytest.raises(TokenRefused, match="the header of the token has"):
        issuer.tokens().verify(f"{header}.e30.c2ln")


def test_keys_are_not_taken_from_a_redirection_to_http(issuer: Issuer) -> None:
    """The network between the broker and that address could replace them."""
    certificates = pki()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["server"])
    target = [""]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/redirected":
                self.send_response(302)
                self.send_header("Location", target[0])
                self.end_headers()
                return
            self.send_response(200)
            self.end_headers()
            self.wfile.write(issuer.file.read_bytes())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    with HTTPServer((HOST, 0), Handler) as plain, HTTPServer((HOST, 0), Handler) as secured:
        secured.socket = context.wrap_socket(secured.socket, server_side=True)
        threads = [
            threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.02})
            for each in (plain, secured)
        ]
        for thread in threads:
            thread.start()
        try:
            login = f'x required ssl.truststore.location="{certificates["ca"]}";'
            here = f"https://{HOST}:{secured.server_address[1]}"
            there = f"http://{HOST}:{plain.server_address[1]}"

            def tokens(url: str) -> BearerTokens:
                return issuer.tokens(sasl_oauthbearer_jwks_endpoint_url=url, sasl_jaas_config=login)

            for target[0] in (f"{there}/keys", "ftp://127.0.0.1/keys", "file:///etc/passwd"):
                with pytest.raises(PenstockError, match=r"which is not followed|is not allowed"):
                    tokens(f"{here}/redirected")
            target[0] = f"{here}/keys"
            assert tokens(f"{here}/redirected").verify(issuer.sign()).name == "bob"
            target[0] = f"{there}/keys"
            assert tokens(f"{there}/redirected").verify(issuer.sign()).name == "bob"
        finally:
            for server, thread in zip((plain, secured), threads, strict=True):
                server.shutdown()
                thread.join()


def test_a_storm_of_unknown_keys_does_not_load_the_keys(issuer: Issuer) -> None:
    tokens = issuer.tokens()
    loads = []

    async def count() -> None:
        loads.append(1)

    tokens.load = count  # type: ignore[method-assign]
    for kid in range(50):
        with pytest.raises(TokenRefused):
            tokens.verify(issuer.sign(kid=str(kid)))
        asyncio.run(tokens.refresh_if_due())
    assert not loads
    tokens._loaded_at -= 11
    asyncio.run(tokens.refresh_if_due())
    assert len(loads) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"kty": "LATTICE", "kid": "k2"},
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA", "kid": "k2"},
        {"kty": "EC", "crv": "P-256", "x": 1, "y": None, "kid": {}},
        {"kty": "RSA", "n": "", "e": ""},
        {"kid": "k2"},
        "text",
        None,
    ],
)
def test_a_key_that_cannot_be_used_does_not_keep_out_the_others(
    issuer: Issuer, tmp_path: Path, other: object
) -> None:
    """RFC 7517, section 5. An issuer that published one such key locked out all users after a restart."""
    (good,) = json.loads(issuer.file.read_text())["keys"]
    mixed = tmp_path / "mixed.json"
    mixed.write_text(json.dumps({"keys": [other, good]}))
    tokens = issuer.tokens(sasl_oauthbearer_jwks_endpoint_url=mixed.as_uri())
    assert tokens.verify(issuer.sign()).name == "bob"


@pytest.mark.parametrize("content", ["", "[]", '{"keys": 1}', '{"keys": ["x"]}', "[" * 100_000, "\0"])
def test_other_content_is_a_clear_error(issuer: Issuer, tmp_path: Path, content: str) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text(content)
    with pytest.raises(PenstockError, match="cannot load the keys of tokens from file:"):
        issuer.tokens(sasl_oauthbearer_jwks_endpoint_url=wrong.as_uri())


def test_keys_come_over_https_from_a_server_of_a_private_authority(issuer: Issuer) -> None:
    certificates = pki()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates["server"])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(issuer.file.read_bytes())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is logged."""

    with HTTPServer((HOST, 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            url = f"https://{HOST}:{server.server_address[1]}/"
            login = f'x required ssl.truststore.location="{certificates["ca"]}";'
            trusting = {"sasl_oauthbearer_jwks_endpoint_url": url, "sasl_jaas_config": login}
            assert issuer.tokens(**trusting).verify(issuer.sign()).name == "bob"
            with pytest.raises(PenstockError, match="certificate verify failed"):
                issuer.tokens(sasl_oauthbearer_jwks_endpoint_url=url)
        finally:
            server.shutdown()
            thread.join()
    with pytest.raises(InvalidConfig, match="/nowhere cannot be read"):
        issuer.tokens(sasl_jaas_config='x required ssl.truststore.location="/nowhere";')


@pytest.mark.parametrize(
    ("url", "audience", "risks"),
    [
        ("https://login.example/jwks", "penstock", []),
        ("http://127.0.0.1/jwks", "penstock", []),
        ("http://login.example/jwks", "penstock", ["without encryption"]),
        ("https://login.example/jwks", "", ["issued for other services"]),
    ],
)
def test_risky_settings_are_logged(events: Events, url: str, audience: str, risks: list[str]) -> None:
    configs = {
        "sasl.oauthbearer.jwks.endpoint.url": url,
        "sasl.oauthbearer.expected.audience": audience,
    }
    BearerTokens(configs.get, in_thread)
    found = [fields["reason"] for _, fields in events.of("tokens_insecure")]
    assert [risk in reason for risk, reason in zip(risks, found, strict=True)] == [True] * len(risks)


def test_without_keys_nothing_starts(issuer: Issuer, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match=r"jwks\.endpoint\.url"):
        BearerTokens(lambda name: None, in_thread)
    with pytest.raises(InvalidConfig, match="https, http or file"):
        BearerTokens({"sasl.oauthbearer.jwks.endpoint.url": "ftp://x"}.get, in_thread)
    secret = tmp_path / "jwks.json"
    secret.write_text('{"keys":[{"kty":"oct","k":"c2VjcmV0","kid":"k1"}]}')
    with pytest.raises(PenstockError, match="no public keys"):
        issuer.tokens(sasl_oauthbearer_jwks_endpoint_url=secret.as_uri())
