"""Sessions: each has its own connections in the name of its user, so that the brokers' ACLs decide.

A cluster without SASL has one session for all visitors. Passwords stay in memory, in the login of the
connections, and end with the session. A session ends by a logout, after eight hours without a request, and a
day after its login. Its event streams end with it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from starlette.requests import Request

from penstock.console.kafka.cluster import Cluster, NotReachable
from penstock.console.kafka.metadata_log import MetadataReader
from penstock.console.kafka.sampling import Sampler
from penstock.model.errors import PenstockError
from penstock.net.client_security import ClientSecurity
from penstock.wire.routing import Address

__all__ = ["COOKIE", "LoginNeeded", "LoginRefused", "Session", "Sessions"]

COOKIE: Final = "penstock_console"
_SESSIONS_MAX: Final = 200
#: one user, or a program with one password, cannot end the sessions of the others
_SESSIONS_PER_USER_MAX: Final = 20
_IDLE_S: Final = 8 * 3600.0
_LIFETIME_S: Final = 24 * 3600.0

#: the security of connections for a user and a password
LoginSecurity: TypeAlias = Callable[[str, str], ClientSecurity]


class LoginNeeded(PenstockError):
    """The request has no session."""


class LoginRefused(PenstockError):
    """The brokers have not accepted the user or the password."""


@dataclass(slots=True)
class Session:
    """One user's connections and samples."""

    user: str | None
    cluster: Cluster
    sampler: Sampler
    metadata: MetadataReader
    opened_at: float
    used_at: float

    def close(self) -> None:
        self.sampler.close()
        self.cluster.close()


class Sessions:
    """Sessions by the token in the cookie. Owned by the thread of the event loop."""

    def __init__(
        self,
        bootstrap: list[Address],
        security: ClientSecurity | None,
        login: LoginSecurity | None,
        timeout_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """With `login`, users log in. Otherwise all visitors have the connections of `security`."""
        self._bootstrap = bootstrap
        self._security = security
        self._login = login
        self._timeout_s = timeout_s
        self._clock = clock
        self._shared: Session | None = None
        self._by_token: dict[str, Session] = {}

    @property
    def needs_login(self) -> bool:
        return self._login is not None

    def of(self, request: Request) -> Session:
        """The session of a request; LoginNeeded if there is none, or if it has expired."""
        if self._login is None:
            if self._shared is None:
                self._shared = self._open(None, self._security)
            return self._shared
        self.end_expired()
        found = self._by_token.get(request.cookies.get(COOKIE, ""))
        if found is None:
            raise LoginNeeded("log in with a user of the cluster")
        found.used_at = self._clock()
        return found

    def end_expired(self) -> None:
        """End the sessions that are idle or too old."""
        now = self._clock()
        for token, session in list(self._by_token.items()):
            if session.used_at < now - _IDLE_S or session.opened_at < now - _LIFETIME_S:
                self._by_token.pop(token).close()

    async def log_in(self, user: str, password: str) -> str:
        """The token of a new session; LoginRefused if the brokers do not accept the password."""
        assert self._login is not None, "only a cluster with SASL has logins"
        session = self._open(user, self._login(user, password))
        try:
            await session.cluster.metadata([])
        except NotReachable as error:
            session.close()
            raise LoginRefused(f"the brokers have not accepted the login: {error}") from error
        self._make_room(user)
        token = secrets.token_urlsafe(32)
        self._by_token[token] = session
        return token

    def log_out(self, request: Request) -> None:
        session = self._by_token.pop(request.cookies.get(COOKIE, ""), None)
        if session is not None:
            session.close()

    def close(self) -> None:
        for session in [*self._by_token.values(), *([self._shared] if self._shared else [])]:
            session.close()
        self._by_token.clear()
        self._shared = None

    def _open(self, user: str | None, security: ClientSecurity | None) -> Session:
        cluster = Cluster(self._bootstrap, security, self._timeout_s)
        now = self._clock()
        return Session(user, cluster, Sampler(cluster.sibling()), MetadataReader(cluster), now, now)

    def _make_room(self, user: str) -> None:
        """End expired sessions, and the one used longest ago if the user, or all users, have too many."""
        self.end_expired()
        own = [token for token, session in self._by_token.items() if session.user == user]
        self._end_excess(own, _SESSIONS_PER_USER_MAX)
        self._end_excess(list(self._by_token), _SESSIONS_MAX)

    def _end_excess(self, tokens: list[str], most: int) -> None:
        """End sessions until there is one fewer than `most`."""
        tokens.sort(key=lambda token: self._by_token[token].used_at)
        for token in tokens[: max(0, len(tokens) - most + 1)]:
            self._by_token.pop(token).close()
