"""The client's side of SASL: an exchange of tokens, and the keys and tokens that it needs."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import pbkdf2_hmac
from typing import Final, Protocol

__all__ = ["BearerTokens", "KeyNeeded", "LoginFailed", "SaltedPasswords", "SaslClient"]

_KEYS_MAX: Final = 64


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
