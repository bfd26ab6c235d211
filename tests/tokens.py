"""An issuer of bearer tokens for tests: a JWKS and a token endpoint over HTTP on loopback."""

from __future__ import annotations

import json
import threading
import time
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

import pytest

HOST = "127.0.0.1"
CLIENT, SECRET = "pipeline", "s3cret:+ä"


class TokenIssuer:
    """Signs tokens with a key of its own, and counts the requests at its endpoint."""

    def __init__(self) -> None:
        self._jwt = pytest.importorskip("jwt")
        pytest.importorskip("cryptography")
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

        self._key = generate_private_key(SECP256R1())
        public = json.loads(self._jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        self.keys = json.dumps({"keys": [{**public, "kid": "k1"}]}).encode()
        #: the forms that were posted
        self.forms: list[dict[str, list[str]]] = []
        self.lasts_s = 600.0
        #: answered instead of a token, if set: status, headers and body
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        issuer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(200, {}, issuer.keys)

            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._send(*issuer.respond(self.headers.get("Authorization", ""), form))

            def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                # librdkafka takes no other type.
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                return None

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        base = f"http://{HOST}:{self._server.server_address[1]}"
        self.jwks_url, self.token_url = f"{base}/jwks.json", f"{base}/token"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def respond(self, authorization: str, form: str) -> tuple[int, dict[str, str], bytes]:
        """What the token endpoint answers."""
        self.forms.append(parse_qs(form))
        if self.answer is not None:
            return self.answer
        if authorization != "Basic " + b64encode(f"{CLIENT}:{SECRET}".encode()).decode():
            refusal = {"error": "invalid_client", "error_description": "unknown client"}
            return 401, {}, json.dumps(refusal).encode()
        answer = {"access_token": self.sign(), "token_type": "Bearer", "expires_in": int(self.lasts_s)}
        return 200, {}, json.dumps(answer).encode()

    def sign(self, **changes: object) -> str:
        claims = {"sub": CLIENT, "exp": time.time() + self.lasts_s, **changes}
        token: str = self._jwt.encode(claims, self._key, algorithm="ES256", headers={"kid": "k1"})
        return token

    def client(self, **changes: str) -> dict[str, str]:
        """The settings of a client, by the names of Java clients."""
        prefix = "sasl.oauthbearer."
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            f"{prefix}token.endpoint.url": self.token_url,
            f"{prefix}client.credentials.client.id": CLIENT,
            f"{prefix}client.credentials.client.secret": SECRET,
            **{prefix + name.replace("_", "."): value for name, value in changes.items()},
        }
