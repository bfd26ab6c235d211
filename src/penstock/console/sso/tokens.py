"""The tokens of one login: what its connections authenticate with, renewed before it expires.

`current` is used by connections for 80 % of the token's lifetime, as in Kafka's clients. Then `fetch` renews
it with the refresh token, once for all connections. A login whose tokens cannot be renewed is over: its
session ends, and the user logs in again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final

from penstock.console.sso.flow import SsoFailed
from penstock.console.sso.provider import Answer, Provider, Refused
from penstock.console.sso.settings import ID
from penstock.model.errors import InvalidConfig
from penstock.security.bearer_settings import Token, parse_token
from penstock.security.sasl_client import LoginFailed

__all__ = ["SsoTokens"]

_USED_FOR: Final = 0.8
#: between two attempts to renew a token while the provider does not answer
_PAUSE_S: Final = 5.0
#: of a token that does not say when it expires
_UNKNOWN_S: Final = 300.0


class SsoTokens:
    """The tokens of one user. `current` and `is_over` belong to any thread, `fetch` blocks."""

    extensions: tuple[tuple[str, str], ...] = ()

    def __init__(
        self,
        provider: Provider,
        answer: Answer,
        claims: dict[str, Any],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`claims` are those of the verified ID token in `answer`."""
        self._provider = provider
        self._now = now
        self._subject = claims["sub"]
        self._lock = threading.Lock()
        self._refused = False
        self._not_before = 0.0
        assert answer.id_token is not None
        self.id_token = answer.id_token
        self._refresh_token = answer.refresh_token
        self._token, self._due_at, self._expires_at = self._used(answer)

    @property
    def is_over(self) -> bool:
        """Whether the login has ended: its token has expired, or was refused, and cannot be renewed."""
        if self._refused:
            return True
        return self._refresh_token is None and self._now() >= self._expires_at

    def current(self) -> str | None:
        """The token; None if a new one is due."""
        now = self._now()
        if self._refused or now >= self._expires_at:
            return None
        # Without a way to renew it, it is used to its end.
        return self._token if now < self._due_at or self._refresh_token is None else None

    def fetch(self) -> str:
        """The current token, or a new one; LoginFailed if the user has to log in again."""
        with self._lock:
            # Another connection may have renewed it meanwhile.
            found = self.current()
            if found is not None:
                return found
            if self._refused or self._refresh_token is None:
                raise LoginFailed("the login has expired: log in again")
            try:
                if self._now() < self._not_before:
                    raise SsoFailed("provider", "the provider did not answer a moment ago")
                answer = self._provider.renew(self._refresh_token)
                if answer.id_token is not None:
                    self._check(answer.id_token)
                self._token, self._due_at, self._expires_at = self._used(answer)
            except Refused as error:
                self._refused = True
                raise LoginFailed(f"the login cannot be renewed: {error}") from error
            except SsoFailed as error:
                if self._now() >= self._not_before:
                    self._not_before = self._now() + _PAUSE_S
                if self._now() < self._expires_at:
                    return self._token
                raise LoginFailed(f"the login cannot be renewed now: {error}") from error
            self.id_token = answer.id_token or self.id_token
            self._refresh_token = answer.refresh_token or self._refresh_token
            return self._token

    def discard(self) -> None:
        """A broker has refused the token: the user has to log in again."""
        self._refused = True

    def _check(self, id_token: str) -> None:
        if self._provider.claims(id_token, None)["sub"] != self._subject:
            raise Refused("provider", "the renewed login is of another user")

    def _used(self, answer: Answer) -> tuple[str, float, float]:
        """The token for brokers, when it is to be renewed, and when it expires."""
        uses_id = self._provider.settings.token == ID
        text = answer.id_token if uses_id else answer.access_token
        if text is None:
            raise Refused("provider", "the provider has renewed no ID token: set token=access, or scopes")
        try:
            token: Token = parse_token(text)
        except (InvalidConfig, ValueError) as error:
            raise SsoFailed("provider", f"the provider's token is malformed: {error}") from error
        now = self._now()
        expires_at = token.expires_at
        if expires_at is None:
            expires_at = now + (answer.expires_in if answer.expires_in and not uses_id else _UNKNOWN_S)
        return token.value, now + _USED_FOR * (expires_at - now), expires_at
