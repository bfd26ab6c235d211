"""Certificates, keys and tokens of the matrix, good and bad."""

from __future__ import annotations

import base64
import hmac
import json
import time
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from penstock.security.certificates import issue, new_authority

__all__ = ["AUDIENCE", "HOST", "ISSUER", "PASSWORD", "USER", "Credentials"]

HOST: Final = "127.0.0.1"
USER: Final = "bob"
PASSWORD: Final = "correct horse"
ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "brokers"


class Credentials:
    """Files in a folder: PEM stores of a server and of clients, and the keys of an issuer of tokens."""

    def __init__(self, folder: Path) -> None:
        import jwt
        from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

        self._folder = folder
        self._jwt: Any = jwt
        now = datetime.now(UTC)
        authority, other = new_authority("authority", now), new_authority("another authority", now)
        stores = {
            "ca": authority.certificate,
            "server": issue(authority, "broker", now, hosts=["localhost", HOST]).keystore,
            "good": issue(authority, "alice", now).keystore,
            "expired": issue(authority, "alice", now - timedelta(days=30), days=1).keystore,
            "stranger": issue(other, "alice", now).keystore,
            "server-only": issue(authority, "alice", now, client=False).keystore,
        }
        for name, text in stores.items():
            path = self.store(name)
            path.write_text(text)
            path.chmod(0o600)
        self._key: Any = generate_private_key(SECP256R1())
        self._other_key: Any = generate_private_key(SECP256R1())
        algorithm: Any = jwt.algorithms.ECAlgorithm
        public = json.loads(algorithm.to_jwk(self._key.public_key()))
        self._public_text = json.dumps(public)
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [{**public, "kid": "k1", "alg": "ES256", "use": "sig"}]}))

    def store(self, name: str) -> Path:
        return self._folder / f"{name}.pem"

    def token(self, *, key_id: str = "k1", forged: bool = False, **claims: object) -> str:
        """A token of the user; claims that are None are left out."""
        now = int(time.time())
        content: dict[str, object] = {
            "sub": USER,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now,
            "exp": now + 600,
        }
        content = {name: value for name, value in {**content, **claims}.items() if value is not None}
        key = self._other_key if forged else self._key
        signed: str = self._jwt.encode(content, key, algorithm="ES256", headers={"kid": key_id})
        return signed

    def unsigned_token(self) -> str:
        """A token with the algorithm `none`."""
        return f"{_part({'alg': 'none', 'kid': 'k1'})}.{self.token().split('.')[1]}."

    def confused_token(self) -> str:
        """A token signed by HMAC with the public key as its secret."""
        signed = f"{_part({'alg': 'HS256', 'kid': 'k1'})}.{self.token().split('.')[1]}"
        return f"{signed}.{_encoded(hmac.digest(self._public_text.encode(), signed.encode(), sha256))}"


def _part(content: dict[str, str]) -> str:
    return _encoded(json.dumps(content).encode())


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
