"""SASL mechanisms of a client, as exchanges of tokens."""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import pbkdf2_hmac
from typing import Final, NamedTuple, Protocol

from penstock.security.sasl_scram import ITERATIONS_MIN, SCRAM_HASHES, client_proof

__all__ = ["BearerTokens", "KeyNeeded", "Login", "LoginFailed", "SaltedPasswords", "SaslClient"]

#: more would keep the caller busy for seconds
_ITERATIONS_MAX: Final = 1 << 20
_KEYS_MAX: Final = 64
_SCRAM_FIRST: Final = re.compile(
    rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<iterations>[0-9]+)(?:,.*)?"
)


class LoginFailed(Exception):
    """The server has not proved that it knows the password, or has refused the client."""


class KeyNeeded(Exception):
    """A step needs a key that takes milliseconds to compute, or a token that another server issues.

    After `compute`, the same step goes on.
    """

    def __init__(self, compute: Callable[[], object]) -> None:
        super().__init__()
        self.compute = compute


class SaltedPasswords:
    """The keys that SCRAM derives from passwords, for the last few salts.

    Invariant: with `deferred`, PBKDF2 runs only in `KeyNeeded.compute`, which any thread may call.
    """

    __slots__ = ("_known", "deferred")

    def __init__(self, *, deferred: bool = False) -> None:
        self.deferred = deferred
        self._known: dict[tuple[str, bytes, bytes, int], bytes] = {}

    def get(self, kind: str, password: bytes, salt: bytes, iterations: int) -> bytes:
        """The key; raises KeyNeeded if it is unknown and `deferred`."""
        wanted = (kind, password, salt, iterations)
        found = self._known.get(wanted)
        if found is not None:
            return found
        if self.deferred:
            raise KeyNeeded(lambda: self._compute(wanted))
        return self._compute(wanted)

    def _compute(self, wanted: tuple[str, bytes, bytes, int]) -> bytes:
        found = pbkdf2_hmac(*wanted)
        if len(self._known) >= _KEYS_MAX:
            # The server chooses the salts.
            self._known.clear()
        self._known[wanted] = found
        return found


class SaslClient(Protocol):
    """One authentication of a client."""

    def start(self) -> bytes:
        """The first token."""
        ...

    def step(self, challenge: bytes) -> bytes | None:
        """The answer to a challenge; None once the exchange is complete. LoginFailed ends it.

        KeyNeeded changes nothing: the same challenge is answered once the key is computed.
        """
        ...


class BearerTokens(Protocol):
    """The source of the tokens of a client."""

    @property
    def extensions(self) -> tuple[tuple[str, str], ...]:
        """Further pairs of the client's message."""
        ...

    def current(self) -> str | None:
        """The token, None if a new one is due."""
        ...

    def fetch(self) -> str:
        """The current token, or a new one; LoginFailed if there is none. It blocks, in any thread."""
        ...

    def discard(self) -> None:
        """The server has refused the token."""
        ...


class Login(NamedTuple):
    """How a client authenticates. `secret` returns the password; OAUTHBEARER has `tokens` instead."""

    mechanism: str
    user: str
    secret: Callable[[], str]
    nonce: Callable[[], str]
    #: keys of earlier authentications
    keys: SaltedPasswords | None = None
    tokens: BearerTokens | None = None

    def begin(self) -> SaslClient:
        keys = self.keys or SaltedPasswords()
        if self.mechanism == "PLAIN":
            return _Plain(self.user, self.secret())
        if self.mechanism == "OAUTHBEARER":
            assert self.tokens is not None
            return _Bearer(self.tokens, deferred=keys.deferred)
        return _Scram(SCRAM_HASHES[self.mechanism], self.user, self.secret(), self.nonce(), keys)

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
    """OAUTHBEARER (RFC 7628). With `deferred`, `start` raises KeyNeeded if a new token is due."""

    def __init__(self, tokens: BearerTokens, *, deferred: bool) -> None:
        self._tokens = tokens
        self._deferred = deferred
        self._fetched: str | None = None
        self._failure: LoginFailed | None = None

    def start(self) -> bytes:
        token = self._fetched or self._tokens.current()
        if token is None and self._failure is None:
            if self._deferred:
                raise KeyNeeded(self._fetch)
            self._fetch()
            token = self._fetched
        if token is None:
            assert self._failure is not None
            raise self._failure
        pairs = ("auth", f"Bearer {token}"), *self._tokens.extensions
        return ("n,," + "".join(f"\x01{name}={value}" for name, value in pairs) + "\x01\x01").encode()

    def _fetch(self) -> None:
        try:
            self._fetched = self._tokens.fetch()
        except LoginFailed as e:
            self._failure = e

    def step(self, challenge: bytes) -> bytes | None:
        if not challenge:
            return None
        # A challenge is the reason for a refusal, which the client has to acknowledge.
        self._tokens.discard()
        return b"\x01"


class _Scram:
    def __init__(self, kind: str, user: str, password: str, nonce: str, keys: SaltedPasswords) -> None:
        self._kind = kind
        self._keys = keys
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
            raise LoginFailed(f"the server requires {iterations} SCRAM iterations")
        final = b"c=biws,r=" + match["nonce"]
        salted = self._keys.get(self._kind, self._password, b64decode(match["salt"]), iterations)
        message = self._bare + b"," + challenge + b"," + final
        proof, self._signature = client_proof(self._kind, salted, message)
        return final + b",p=" + b64encode(proof)

    def _verify(self, challenge: bytes) -> bytes | None:
        assert self._signature is not None
        if not hmac.compare_digest(challenge, b"v=" + b64encode(self._signature)):
            raise LoginFailed("the server has not proved that it knows the password")
        self._is_done = True
        return None
