"""A strict OpenID Connect provider over HTTP on loopback, with knobs for each way in which one may be wrong.

It checks what a provider has to check: the client, its redirect URI, PKCE, and that codes and refresh tokens
are used once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlencode, urlsplit

import pytest

HOST = "127.0.0.1"
CLIENT, SECRET = "penstock-console", "s3cret:+ä"
AUDIENCE = "penstock"


class OidcProvider:
    """Serves from the constructor until `close`. The user `user` is logged in already."""

    def __init__(self) -> None:
        self._jwt = pytest.importorskip("jwt")
        pytest.importorskip("cryptography")
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

        self.user = "alice"
        self.redirect_uris: set[str] = set()
        self.lasts_s = 600.0
        self.issues_refresh_tokens = True
        #: changes of the claims of ID tokens, of the metadata, and of answers to browsers
        self.claims: dict[str, Any] = {}
        self.changes: dict[str, Any] = {}
        self.answers: dict[str, str] = {}
        #: changes of the answers of the token endpoint; None leaves a field out
        self.tokens: dict[str, Any] = {}
        #: paths that are answered with a redirect to another address
        self.redirected: dict[str, str] = {}
        #: the paths of all requests
        self.requested: list[str] = []
        self.algorithm = "ES256"
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: dict[str, str] = {}
        self.key, self.other_key = (generate_private_key(SECP256R1()) for _ in range(2))
        self.signing_key: Any = self.key
        self.key_name = "k1"
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["Content-Length"])).decode())

            def _answer(self, form: str | None) -> None:
                status, headers, body = provider.respond(self.path, form, dict(self.headers))
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.issuer = f"http://{HOST}:{self._server.server_address[1]}"

    @property
    def jwks_url(self) -> str:
        return f"{self.issuer}/jwks"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def respond(
        self, target: str, form: str | None, headers: dict[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        parts = urlsplit(target)
        query = {name: values[0] for name, values in parse_qs(form or parts.query).items()}
        self.requested.append(parts.path)
        if parts.path in self.redirected:
            return 302, {"Location": self.redirected[parts.path]}, b""
        if parts.path == "/.well-known/openid-configuration":
            return _json(200, {**self._metadata(), **self.changes})
        if parts.path == "/jwks":
            return _json(200, {"keys": [self._public()]})
        if parts.path == "/authorize":
            return self._authorize(query)
        if parts.path == "/token":
            return self._token(query, headers.get("Authorization", ""))
        return _json(404, {"error": "not_found"})

    def _metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": self.jwks_url,
            "end_session_endpoint": f"{self.issuer}/logout",
            "authorization_response_iss_parameter_supported": True,
        }

    def _public(self) -> dict[str, Any]:
        public = json.loads(self._jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        return {**public, "kid": self.key_name}

    def _authorize(self, query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        if query.get("client_id") != CLIENT or query.get("redirect_uri") not in self.redirect_uris:
            return _json(400, {"error": "invalid_request"})
        assert query["response_type"] == "code"
        assert query["code_challenge_method"] == "S256"
        assert len(query["code_challenge"]) == 43
        assert len(query["state"]) >= 43 and len(query["nonce"]) >= 43
        assert "openid" in query["scope"].split()
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        answer = {"code": code, "state": query["state"], "iss": self.issuer, **self.answers}
        return 302, {"Location": f"{query['redirect_uri']}?{urlencode(answer)}"}, b""

    def _token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, str], bytes]:
        pair = b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if (unquote_plus(pair[0]), unquote_plus(pair[2])) != (CLIENT, SECRET):
            return _json(401, {"error": "invalid_client"})
        if form["grant_type"] == "refresh_token":
            user = self._refresh_tokens.pop(form["refresh_token"], None)
            return _json(400, {"error": "invalid_grant"}) if user is None else self._issue(user, None)
        query = self._codes.pop(form["code"], None)
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = urlsafe_b64encode(digest).decode().rstrip("=")
        if (
            query is None
            or query["code_challenge"] != challenge
            or query["redirect_uri"] != form["redirect_uri"]
        ):
            return _json(400, {"error": "invalid_grant"})
        return self._issue(self.user, query["nonce"])

    def _issue(self, user: str, nonce: str | None) -> tuple[int, dict[str, str], bytes]:
        common = {"iss": self.issuer, "sub": user, "iat": time.time(), "exp": time.time() + self.lasts_s}
        named = {"aud": CLIENT, "preferred_username": user, **({"nonce": nonce} if nonce else {})}
        answer: dict[str, Any] = {
            "access_token": self.sign({**common, "aud": AUDIENCE}, self.key),
            "id_token": self.sign({**common, **named, **self.claims}, self.signing_key, self.algorithm),
            "token_type": "Bearer",
            "expires_in": int(self.lasts_s),
        }
        if self.issues_refresh_tokens:
            answer["refresh_token"] = secrets.token_urlsafe(16)
            self._refresh_tokens[answer["refresh_token"]] = user
        answer |= self.tokens
        return _json(200, {name: value for name, value in answer.items() if value is not None})

    def sign(self, claims: dict[str, Any], key: Any, algorithm: str = "ES256") -> str:
        kept = {name: value for name, value in claims.items() if value is not None}
        token: str = self._jwt.encode(kept, key, algorithm=algorithm, headers={"kid": self.key_name})
        return token

    def end_logins(self) -> None:
        """No login can be renewed any more."""
        self._refresh_tokens.clear()

    def rotate_keys(self) -> None:
        self.key, self.other_key = self.other_key, self.key
        self.signing_key, self.key_name = self.key, "k2"


def _json(status: int, content: Any) -> tuple[int, dict[str, str], bytes]:
    return status, {"Content-Type": "application/json"}, json.dumps(content).encode()
