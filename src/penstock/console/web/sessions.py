"""Sessions: each has its own connections in the name of its user, so that the brokers' ACLs decide.

A cluster without SASL has one session for all visitors. Passwords stay in memory, in the login of the
connections, and end with the session. A session ends by a logout, after eight hours without a request, a day
after its login, and as soon as the brokers no longer accept its login. Its event streams end with it.

Connections have the client id `penstock-console/ADDRESS` with the address of the browser, for the brokers'
audit. Logins are limited by that address and by user (`login_limits`).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from starlette.requests import Request
from starlette.responses import Response

from penstock.console.kafka.cluster import Cluster, NotReachable, Rejected
from penstock.console.kafka.metadata_log import MetadataReader
from penstock.console.kafka.sampling import Sampler
from penstock.console.sso.flow import SsoFailed
from penstock.console.web.lag_store import LagStore
from penstock.console.web.login_limits import LoginLimits
from penstock.model.errors import PenstockError
from penstock.net.client_security import ClientSecurity
from penstock.security.console_visitors import CONSOLE_CLIENT_ID
from penstock.security.sasl_client import BearerTokens
from penstock.wire.routing import Address

if TYPE_CHECKING:
    from penstock.console.sso.tokens import SsoTokens

__all__ = [
    "COOKIE",
    "SECURE_COOKIE",
    "BearerSecurity",
    "Closable",
    "LoginNeeded",
    "LoginRefused",
    "LoginSecurity",
    "Session",
    "Sessions",
    "address_of",
    "delete_session_cookie",
    "set_session_cookie",
]

COOKIE: Final = "penstock_console"
#: the same over TLS: a page of a neighbouring host name, or without TLS, cannot set such a cookie
SECURE_COOKIE: Final = f"__Host-{COOKIE}"
_SESSIONS_MAX: Final = 200
#: one user, or a program with one password, cannot end the sessions of the others
_SESSIONS_PER_USER_MAX: Final = 20
_IDLE_S: Final = 8 * 3600.0
_LIFETIME_S: Final = 24 * 3600.0

#: the security of connections for a user and a password
LoginSecurity: TypeAlias = Callable[[str, str], ClientSecurity]
#: the security of connections for a user and its tokens
BearerSecurity: TypeAlias = Callable[[str, BearerTokens], ClientSecurity]


class LoginNeeded(PenstockError):
    """The request has no session."""


class LoginRefused(PenstockError):
    """The brokers have not accepted the user or the password."""


class Closable(Protocol):
    """A part of a session that ends with it."""

    def close(self) -> None: ...


@dataclass(slots=True)
class Session:
    """One user's connections and samples."""

    user: str | None
    #: whose session it is, for the limit of one user: names of different logins may be equal
    owner: str
    cluster: Cluster
    sampler: Sampler
    metadata: MetadataReader
    opened_at: float
    used_at: float
    #: the tokens of single sign-on; None after a login with a password
    tokens: SsoTokens | None = None
    #: plans and moves of the user; None before the first
    reassigning: Closable | None = None

    @property
    def is_refused(self) -> bool:
        """Whether brokers, or the provider of single sign-on, no longer accept the login."""
        return self.cluster.is_rejected or (self.tokens is not None and self.tokens.is_over)

    def close(self) -> None:
        if self.reassigning is not None:
            self.reassigning.close()
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
        bearer: BearerSecurity | None = None,
        lags: LagStore | None = None,
    ) -> None:
        """With `login` or `bearer`, users log in with a password, or with tokens of single sign-on.

        Otherwise all visitors have the connections of `security`.
        """
        self._bearer = bearer
        #: the lag of groups over hours, which samples of all sessions add to
        self.lags = LagStore(None) if lags is None else lags
        self._bootstrap = bootstrap
        self._security = security
        self._login = login
        self._timeout_s = timeout_s
        self._clock = clock
        self._shared: Session | None = None
        self._by_token: dict[str, Session] = {}
        self._limits = LoginLimits(clock)

    @property
    def needs_login(self) -> bool:
        return self._login is not None or self._bearer is not None

    @property
    def has_passwords(self) -> bool:
        return self._login is not None

    def of(self, request: Request) -> Session:
        """The session of a request; LoginNeeded if there is none, or if it has expired."""
        if not self.needs_login:
            if self._shared is None:
                self._shared = self._open(None, "", self._security)
            return self._shared
        self.end_expired()
        found = self._by_token.get(_session_token(request))
        if found is None:
            raise LoginNeeded("log in with a user of the cluster")
        found.used_at = self._clock()
        return found

    def end_expired(self) -> None:
        """End the sessions that are idle or too old."""
        now = self._clock()
        for token, session in list(self._by_token.items()):
            is_over = session.used_at < now - _IDLE_S or session.opened_at < now - _LIFETIME_S
            if is_over or session.is_refused:
                self._by_token.pop(token).close()

    @contextmanager
    def attempt(self, address: str, user: str | None) -> Iterator[None]:
        """A login of a browser at an address; TooManyLogins if it is not to be tried.

        It counts as a failure if it ends with LoginRefused or SsoFailed, and not at all if no broker decides.
        """
        begun = self._limits.begin(address, user)
        try:
            yield
        except (LoginRefused, SsoFailed):
            self._limits.failed(begun)
            raise
        except BaseException:
            self._limits.undecided(begun)
            raise
        self._limits.succeeded(begun)

    async def log_in(self, user: str, password: str, address: str) -> str:
        """The token of a new session of a browser at an address.

        LoginRefused if the brokers do not accept the password, TooManyLogins before they are asked.
        """
        if self._login is None:
            raise LoginRefused("this console has no logins with passwords")
        with self.attempt(address, user):
            return await self._opened(user, f"password:{user}", self._login(user, password), address)

    async def log_in_with(self, tokens: SsoTokens, user: str, subject: str, address: str) -> str:
        """The token of a new session for a user of single sign-on; LoginRefused as above."""
        assert self._bearer is not None, "there is no single sign-on"
        security = self._bearer(user, tokens)
        return await self._opened(user, f"sso:{subject}", security, address, tokens)

    async def _opened(
        self,
        user: str,
        owner: str,
        security: ClientSecurity,
        address: str,
        tokens: SsoTokens | None = None,
    ) -> str:
        session = self._open(user, owner, security, f"{CONSOLE_CLIENT_ID}/{address}")
        session.tokens = tokens
        try:
            await session.cluster.metadata([])
        except Rejected as error:
            session.close()
            raise LoginRefused(f"the brokers have not accepted the login: {error}") from error
        except NotReachable as error:
            session.close()
            raise NotReachable(f"no broker has checked the login: {error}") from error
        self._make_room(owner)
        token = secrets.token_urlsafe(32)
        self._by_token[token] = session
        return token

    def log_out(self, request: Request) -> Session | None:
        """End the session of a request; returns it if there was one."""
        session = self._by_token.pop(_session_token(request), None)
        if session is not None:
            session.close()
        return session

    def close(self) -> None:
        for session in [*self._by_token.values(), *([self._shared] if self._shared else [])]:
            session.close()
        self._by_token.clear()
        self._shared = None

    def _open(
        self,
        user: str | None,
        owner: str,
        security: ClientSecurity | None,
        client_id: str = CONSOLE_CLIENT_ID,
    ) -> Session:
        cluster = Cluster(self._bootstrap, security, self._timeout_s, client_id)
        now = self._clock()
        seen = partial(self.lags.seen, is_total=not self.needs_login)
        sampler = Sampler(cluster.sibling(), on_sample=seen)
        return Session(user, owner, cluster, sampler, MetadataReader(cluster), now, now)

    def _make_room(self, owner: str) -> None:
        """End expired sessions, and the one used longest ago if the user, or all users, have too many."""
        self.end_expired()
        own = [token for token, session in self._by_token.items() if session.owner == owner]
        self._end_excess(own, _SESSIONS_PER_USER_MAX)
        self._end_excess(list(self._by_token), _SESSIONS_MAX)

    def _end_excess(self, tokens: list[str], most: int) -> None:
        """End sessions until there is one fewer than `most`."""
        tokens.sort(key=lambda token: self._by_token[token].used_at)
        for token in tokens[: max(0, len(tokens) - most + 1)]:
            self._by_token.pop(token).close()


def address_of(request: Request) -> str:
    """The address of the browser."""
    return "" if request.client is None else request.client.host


def _is_secure(request: Request) -> bool:
    return request.url.scheme == "https"


def _session_token(request: Request) -> str:
    return request.cookies.get(SECURE_COOKIE if _is_secure(request) else COOKIE, "")


def set_session_cookie(response: Response, request: Request, token: str) -> None:
    secure = _is_secure(request)
    name = SECURE_COOKIE if secure else COOKIE
    response.set_cookie(name, token, path="/", httponly=True, samesite="strict", secure=secure)


def delete_session_cookie(response: Response, request: Request) -> None:
    secure = _is_secure(request)
    name = SECURE_COOKIE if secure else COOKIE
    response.delete_cookie(name, path="/", httponly=True, samesite="strict", secure=secure)
