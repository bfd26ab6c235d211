"""SASL mechanisms of a client, as exchanges of tokens."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import pbkdf2_hmac
from typing import Final, NamedTuple, Protocol

from penstock.security.sasl_scram import ITERATIONS_MIN, SCRAM_HASHES, client_proof

__all__ = ["Login", "LoginFailed", "SaslClient"]

#: more would keep the caller busy for seconds
_ITERATIONS_MAX: Final = 1 << 20
_SCRAM_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]+)(?:,.*)?"
)


class LoginFailed(Exception):
    """The server has not proved that it knows the password, or has refused the client."""


class SaslClient(Protocol):
    """One authentication of a client."""

    def start(self) -> bytes:
        """The first token."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """The answer to a challenge; None once the exchange is complete. LoginFailed ends it."""
        ...


class Login(NamedTuple):
    """How a client authenticates. `secret` is a password, or for OAUTHBEARER returns a token."""

    mechanism: str
    user: str
    secret: Callable[[], str]
    nonce: Callable[[], str]

    def begin(self) -> SaslClient:
        if self.mechanism == "PLAIN":
            return _Plain(self.user, self.secret())
        if self.mechanism == "OAUTHBEARER":
            return _Bearer(self.secret())
        return _Scram(SCRAM_HASHES[self.mechanism], self.user, self.secret(), self.nonce())

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {self.user!r})"


class _Plain:
    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def start(self) -> bytes:
        return self._token

    def step(self, challenge: bytes) -> bytes | None:
        return None


class _Bearer:
    def __init__(self, token: str) -> None:
        self._token = token

    def start(self) -> bytes:
        return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()

    def step(self, challenge: bytes) -> bytes | None:
        # A challenge is the reason for a refusal, which the client has to acknowledge.
        return b"\x01" if challenge else None


class _Scram:
    def __init__(self, kind: str, user: str, password: str, nonce: str) -> None:
        self._kind = kind
        self._password = password.encode()
        self._nonce = nonce.encode()
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}".encode()
        self._signature: bytes | None = None
        self._is_done = False

    def start(self) -> bytes:
        return b"n,," + self._bare

    def step(self, challenge: bytes) -> bytes | None:
        if self._is_done:
            return None
        return self._prove(challenge) if self._signature is None else self._verify(challenge)

    def _prove(self, challenge: bytes) -> bytes:
        match = _SCRAM_FIRST.fullmatch(challenge)
        if match is None or not match["nonce"].startswith(self._nonce) or match["nonce"] == self._nonce:
            raise LoginFailed("the server's first SCRAM message is malformed or has another nonce")
        iterations = int(match["iterations"])
        if not ITERATIONS_MIN <= iterations <= _ITERATIONS_MAX:
            raise LoginFailed(f"the server asks for {iterations} SCRAM iterations")
        final = b"c=biws,r=" + match["nonce"]
        salted = pbkdf2_hmac(self._kind, self._password, b64decode(match["salt"]), iterations)
        message = self._bare + b"," + challenge + b"," + final
        proof, self._signature = client_proof(self._kind, salted, message)
        return final + b",p=" + b64encode(proof)

    def _verify(self, challenge: bytes) -> bytes | None:
        assert self._signature is not None
        if not hmac.compare_digest(challenge, b"v=" + b64encode(self._signature)):
            raise LoginFailed("the server has not proved that it knows the password")
        self._is_done = True
        return None
