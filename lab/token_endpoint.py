"""An OAuth token endpoint over HTTP on loopback, as librdkafka's tests of OIDC expect it.

It answers like the one of trivup, the tool with which librdkafka runs these tests: client credentials, a
signed assertion (RFC 7523) or a request in the form of Azure's metadata service get a token. Two more
addresses answer with a token whose signature is wrong, and with one that has expired.
"""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from jwt.algorithms import RSAAlgorithm

from lab.server import HOST

__all__ = ["AUDIENCE", "ISSUER", "SUBJECT", "TokenEndpoint"]

ISSUER: Final = "issuer"
AUDIENCE: Final = "api://default"
SUBJECT: Final = "subject"
_SCOPE: Final = "test"
_LIFETIME_S: Final = 60
_KEY_BITS: Final = 2048
_ASSERTION_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_METADATA_FIELDS: Final = ("client_id", "resource", "api-version")
_PASSWORD: Final = "assertion-password"


class TokenEndpoint:
    """Signs tokens for the user `SUBJECT`; serves from the constructor until `close`.

    The key of its client, which signs assertions, is in files in `folder`.
    """

    def __init__(self, folder: Path) -> None:
        self._key = generate_private_key(65537, _KEY_BITS)
        self._client_key = generate_private_key(65537, _KEY_BITS)
        self._folder = folder
        _write_key(folder / "assertion.key", self._client_key, NoEncryption())
        encrypted = BestAvailableEncryption(_PASSWORD.encode())
        _write_key(folder / "assertion-encrypted.key", self._client_key, encrypted)
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        )
        self._thread.start()
        self._base = f"http://{HOST}:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def jwks_url(self) -> str:
        """The address of the public key, for brokers."""
        return f"{self._base}/keys"

    @property
    def client(self) -> dict[str, str]:
        """The settings of a client, by the names of librdkafka."""
        return {
            "sasl.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "client",
            "sasl.oauthbearer.client.secret": "secret",
            "sasl.oauthbearer.scope": _SCOPE,
            "sasl.oauthbearer.token.endpoint.url": f"{self._base}/retrieve",
        }

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which librdkafka's tests find addresses and keys."""
        return {
            "VALID_OIDC_URL": f"{self._base}/retrieve",
            "INVALID_OIDC_URL": f"{self._base}/retrieve/badformat",
            "EXPIRED_TOKEN_OIDC_URL": f"{self._base}/retrieve/expire",
            "OAUTHBEARER_CLIENT_PRIVATE_KEY": str(self._folder / "assertion.key"),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY_ENCRYPTED": str(self._folder / "assertion-encrypted.key"),
            "OAUTHBEARER_CLIENT_PRIVATE_KEY_PASSWORD": _PASSWORD,
        }

    def keys(self) -> dict[str, Any]:
        """The JWKS."""
        public = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": "k1", "use": "sig", "alg": "RS256"}]}

    def sign(self, lifetime_s: int = _LIFETIME_S) -> str:
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": SUBJECT,
            "client_id": SUBJECT,
            "iat": now,
            "exp": now + lifetime_s,
        }
        token: str = jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "k1"})
        return token

    def refusal(self, form: dict[str, list[str]], *, has_authorization: bool) -> str:
        """Why a request for a token is refused; empty if it is not."""
        if form.get("scope", [_SCOPE]) != [_SCOPE]:
            return "invalid scope"
        match form.get("grant_type"):
            case ["client_credentials"]:
                return "" if has_authorization else "no Authorization"
            case [grant] if grant == _ASSERTION_GRANT:
                return self._assertion_refusal(form.get("assertion", [""])[0])
            case _:
                return "unknown grant_type"

    def _assertion_refusal(self, assertion: str) -> str:
        try:
            claims = jwt.decode(
                assertion, self._client_key.public_key(), algorithms=["RS256"], options={"verify_aud": False}
            )
        except jwt.InvalidTokenError as error:
            return f"invalid assertion: {error}"
        return "" if claims.get("sub") else "assertion without sub"


def metadata_refusal(query: dict[str, list[str]], header: str) -> str:
    """Why a request in the form of Azure's metadata service is refused; empty if it is not."""
    missing = [name for name in _METADATA_FIELDS if name not in query]
    if missing:
        return f"no {missing[0]}"
    return "" if header.lower() == "true" else "no header Metadata: true"


def _write_key(path: Path, key: RSAPrivateKey, protection: KeySerializationEncryption) -> None:
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, protection))


def _handler(endpoint: TokenEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            target = urlsplit(self.path)
            if target.path == "/keys":
                return self._send(200, endpoint.keys())
            refused = metadata_refusal(parse_qs(target.query), self.headers.get("Metadata", ""))
            return self._token(refused, endpoint.sign())

        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            if self.path == "/retrieve/badformat":
                return self._token("", endpoint.sign() + "invalid")
            if self.path == "/retrieve/expire":
                return self._token("", endpoint.sign(-1))
            refused = endpoint.refusal(form, has_authorization="Authorization" in self.headers)
            return self._token(refused, endpoint.sign())

        def _token(self, refused: str, token: str) -> None:
            if refused:
                self._send(400, {"error": "invalid_request", "error_description": refused})
            else:
                self._send(200, {"access_token": token})

        def _send(self, status: int, content: dict[str, Any]) -> None:
            body = json.dumps(content).encode()
            self.send_response(status)
            # librdkafka takes no other type.
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are not logged."""

    return Handler
