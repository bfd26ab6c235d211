"""The application: routes over sessions, behind the checks of every request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.console.registry.api import RegistryApi
from penstock.console.registry.decoding import SchemaRegistry
from penstock.console.sso.settings import SsoSettings
from penstock.console.views.knowledge import UNKNOWN, Gap
from penstock.console.views.lag_ring import joined
from penstock.console.views.overview import overview
from penstock.console.web.access_routes import access_routes, quota_routes, transaction_routes
from penstock.console.web.answers import as_json, body_of, on_error
from penstock.console.web.backup_routes import BackupStatus, backup_routes
from penstock.console.web.cluster_routes import cluster_routes
from penstock.console.web.fault_routes import Faults, fault_routes
from penstock.console.web.fleet_routes import Telemetry, fleet_routes
from penstock.console.web.group_routes import group_routes
from penstock.console.web.guard import SECURITY_HEADERS, refusal
from penstock.console.web.lag_store import LagStore
from penstock.console.web.link_routes import link_routes
from penstock.console.web.live import Closing, event_stream, ticks
from penstock.console.web.login_limits import TooManyLogins
from penstock.console.web.message_routes import message_routes
from penstock.console.web.metadata_routes import metadata_routes
from penstock.console.web.reassignment_routes import Planner, reassignment_routes
from penstock.console.web.schema_routes import schema_routes
from penstock.console.web.sessions import (
    BearerSecurity,
    LoginNeeded,
    LoginRefused,
    LoginSecurity,
    Sessions,
    address_of,
    delete_session_cookie,
    set_session_cookie,
)
from penstock.console.web.sso_routes import Sso, sso_routes
from penstock.console.web.topic_routes import topic_routes
from penstock.console.web.traffic_routes import traffic_routes
from penstock.console.web.visitors import Network, scheme_of, visitor_of
from penstock.model.errors import PenstockError
from penstock.net.client_security import ClientSecurity
from penstock.registry.http import RegistryHttp
from penstock.registry.settings import RegistrySettings
from penstock.wire.routing import Address

__all__ = ["ConsoleSettings", "build_app"]

STATIC: Final = Path(__file__).parents[1] / "static"
#: how often expired sessions are ended that no request uses
_SWEEP_S: Final = 60.0
#: a login is read before its visitor is known
_LOGIN_BYTES_MAX: Final = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The pages of a console, and the users that may see them."""

    bootstrap: list[Address]
    security: ClientSecurity | None = None
    #: makes the security of a user's connections; None for a cluster without SASL
    login: LoginSecurity | None = None
    #: single sign-on, and the security of connections with its tokens; None without it
    sso: SsoSettings | None = None
    bearer: BearerSecurity | None = None
    timeout_s: float = 5.0
    #: names beside those of loopback that browsers may use
    hosts: Collection[str] = field(default_factory=tuple)
    #: proxies whose X-Forwarded-For and X-Forwarded-Proto are believed
    proxies: Sequence[Network] = ()
    #: a link to a trace, with {trace_id}
    trace_url: str | None = None
    #: where the GPU tables are served; the pages of the fleet are hidden without it
    telemetry: Telemetry | None = None
    #: for development: buttons that kill and pause local brokers
    faults: Faults | None = None
    #: proposes moves that balance the brokers; the page makes no plans without it
    planner: Planner | None = None
    #: the folder with the lag of groups over hours; it is forgotten at the end without one
    history: Path | None = None
    #: the schema registry; None without one
    registry: RegistrySettings | None = None
    #: a backup that runs; the overview shows none without one
    backup: BackupStatus | None = None


class Credentials(msgspec.Struct):
    user: str
    password: str


class _Guarded:
    """Refuses requests that do not come from our own pages, and adds the security headers.

    `scope["client"]` and `scope["scheme"]` are those of the browser from here on, also behind a proxy.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str], proxies: Sequence[Network]) -> None:
        self._app = app
        self._hosts = hosts
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        received = Headers(scope=scope)
        headers = dict(received.items())
        peer, port = scope.get("client") or ("", 0)
        visitor = visitor_of(peer, received.getlist("x-forwarded-for"), self._proxies)
        scheme = scheme_of(peer, scope["scheme"], headers.get("x-forwarded-proto"), self._proxies)
        scope = {**scope, "client": (visitor, port), "scheme": scheme}
        reason = refusal(scope["method"], scope["path"], headers, self._hosts, scope["scheme"])

        async def secured(message: Message) -> None:
            if message["type"] == "http.response.start":
                found = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    found.setdefault(name, value)
            await send(message)

        if reason is None:
            await self._app(scope, receive, secured)
        else:
            refused = as_json({"error": "FORBIDDEN", "message": reason}, 403)
            await refused(scope, receive, secured)


def build_app(settings: ConsoleSettings) -> Starlette:
    """The application; `app.state.closing` ends its event streams."""
    sessions = Sessions(
        settings.bootstrap,
        settings.security,
        settings.login,
        settings.timeout_s,
        bearer=settings.bearer,
        lags=LagStore(settings.history),
    )
    sso = None if settings.sso is None else Sso(settings.sso)
    closing = Closing()
    decoding = None if settings.registry is None else SchemaRegistry(settings.registry)
    registry = None if settings.registry is None else RegistryApi(RegistryHttp(settings.registry))

    app = Starlette(
        routes=[
            *_session_routes(sessions, sso, settings),
            *sso_routes(sessions, sso),
            *_state_routes(sessions, closing),
            *topic_routes(sessions),
            *group_routes(sessions),
            *cluster_routes(sessions),
            *link_routes(sessions),
            *reassignment_routes(sessions, settings.planner),
            *metadata_routes(sessions),
            *traffic_routes(sessions),
            *access_routes(sessions),
            *quota_routes(sessions),
            *transaction_routes(sessions),
            *fleet_routes(sessions, settings.telemetry),
            *backup_routes(sessions, settings.backup),
            *fault_routes(sessions, settings.faults),
            *message_routes(sessions, closing, decoding),
            *schema_routes(sessions, registry, decoding),
            *_pages(),
        ],
        middleware=[Middleware(_Guarded, hosts=settings.hosts, proxies=settings.proxies)],
        exception_handlers={
            LoginNeeded: _log_in,
            LoginRefused: _log_in,
            TooManyLogins: _wait,
            PenstockError: on_error,
        },
        lifespan=lambda _: _running(sessions),
    )
    app.state.closing = closing
    return app


@asynccontextmanager
async def _running(sessions: Sessions) -> AsyncIterator[None]:
    """The work beside requests: expired sessions end, and the history of lags is kept."""
    await sessions.lags.load()
    tasks = [asyncio.create_task(_end_expired(sessions)), asyncio.create_task(sessions.lags.keep())]
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    sessions.close()
    await sessions.lags.save()


async def _end_expired(sessions: Sessions) -> None:
    """Why: without requests, the password and the connections of an expired session would stay."""
    while True:
        await asyncio.sleep(_SWEEP_S)
        sessions.end_expired()


def _log_in(_: Request, error: Exception) -> Response:
    return as_json({"error": type(error).__name__, "message": str(error)}, 401)


def _wait(_: Request, error: Exception) -> Response:
    assert isinstance(error, TooManyLogins)
    response = as_json({"error": "TooManyLogins", "message": str(error)}, 429)
    response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def _session_routes(sessions: Sessions, sso: Sso | None, settings: ConsoleSettings) -> list[Route]:
    async def session(request: Request) -> Response:
        try:
            user, logged_in = sessions.of(request).user, True
        except LoginNeeded:
            user, logged_in = None, False
        shown: dict[str, Any] = {
            "user": user,
            "logged_in": logged_in,
            "needs_login": sessions.needs_login,
            "passwords": sessions.has_passwords,
            "sso": None if sso is None else sso.settings.label,
            "bootstrap": [f"{host}:{port}" for host, port in settings.bootstrap],
            "trace_url": settings.trace_url,
            "telemetry": settings.telemetry is not None,
            "faults": settings.faults is not None,
            "registry": settings.registry is not None,
            "backup": settings.backup is not None,
        }
        return as_json(shown)

    async def login(request: Request) -> Response:
        given = await body_of(request, Credentials, _LOGIN_BYTES_MAX)
        token = await sessions.log_in(given.user, given.password, address_of(request))
        response = as_json({"user": given.user})
        set_session_cookie(response, request, token)
        return response

    async def logout(request: Request) -> Response:
        session = sessions.log_out(request)
        response = as_json({"url": None if sso is None else await sso.logout_url(session)})
        delete_session_cookie(response, request)
        return response

    return [
        Route("/api/session", session),
        Route("/api/login", login, methods=["POST"]),
        Route("/api/logout", logout, methods=["POST"]),
    ]


def _state_routes(sessions: Sessions, closing: Closing) -> list[Route]:
    async def live(request: Request) -> Response:
        return event_stream(closing, ticks(sessions.of(request).sampler))

    async def state(request: Request) -> Response:
        sampler = sessions.of(request).sampler
        await sampler.current()
        # The alerts of the last sample are not those of now if the brokers do not respond.
        gap = sampler.alerts.hidden if sampler.doubt is None else Gap(UNKNOWN, sampler.doubt)
        active = [alert.shown() for alert in sampler.alerts.active]
        alerts = {"alerts": active, "alerts_gap": None if gap is None else gap.shown()}
        shown = overview(sampler.history, sampler.events, sampler.doubt)
        if "series" in shown and not sessions.needs_login:
            # With a login, the total is that of the groups which one user sees.
            shown["series"]["lag"] = joined(sessions.lags.ring.total(), shown["series"]["lag"])
        return as_json({**shown, **alerts})

    return [Route("/api/live", live), Route("/api/overview", state)]


def _pages() -> list[BaseRoute]:
    async def index(_: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    return [Route("/", index), Mount("/static", StaticFiles(directory=STATIC))]
