"""The application: routes over sessions, behind the checks of every request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
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

from penstock.console.views.overview import overview
from penstock.console.web.access_routes import access_routes, quota_routes, transaction_routes
from penstock.console.web.answers import as_json, body_of, on_error
from penstock.console.web.cluster_routes import cluster_routes
from penstock.console.web.fault_routes import Faults, fault_routes
from penstock.console.web.fleet_routes import Telemetry, fleet_routes
from penstock.console.web.group_routes import group_routes
from penstock.console.web.guard import SECURITY_HEADERS, refusal
from penstock.console.web.live import Closing, event_stream, ticks
from penstock.console.web.message_routes import message_routes
from penstock.console.web.metadata_routes import metadata_routes
from penstock.console.web.registry import SchemaRegistry
from penstock.console.web.sessions import COOKIE, LoginNeeded, LoginRefused, LoginSecurity, Sessions
from penstock.console.web.topic_routes import topic_routes
from penstock.model.errors import PenstockError
from penstock.net.client_security import ClientSecurity
from penstock.wire.routing import Address

__all__ = ["ConsoleSettings", "build_app"]

STATIC: Final = Path(__file__).parents[1] / "static"
#: how often expired sessions are ended that no request uses
_SWEEP_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The pages of a console, and the users that may see them."""

    bootstrap: list[Address]
    security: ClientSecurity | None = None
    #: makes the security of a user's connections; None for a cluster without SASL
    login: LoginSecurity | None = None
    timeout_s: float = 5.0
    #: names beside those of loopback that browsers may use
    hosts: Collection[str] = field(default_factory=tuple)
    #: a link to a trace, with {trace_id}
    trace_url: str | None = None
    #: where the GPU tables are served; the pages of the fleet are hidden without it
    telemetry: Telemetry | None = None
    #: for development: buttons that kill and pause local brokers
    faults: Faults | None = None
    #: decodes messages by their schemas; None without a registry
    registry: SchemaRegistry | None = None


class Credentials(msgspec.Struct):
    user: str
    password: str


class _Guarded:
    """Refuses requests that do not come from our own pages, and adds the security headers."""

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = dict(Headers(scope=scope).items())
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
    sessions = Sessions(settings.bootstrap, settings.security, settings.login, settings.timeout_s)
    closing = Closing()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        sweep = asyncio.create_task(_end_expired(sessions))
        yield
        sweep.cancel()
        sessions.close()

    app = Starlette(
        routes=[
            *_session_routes(sessions, settings),
            *_state_routes(sessions, closing),
            *topic_routes(sessions),
            *group_routes(sessions),
            *cluster_routes(sessions),
            *metadata_routes(sessions),
            *access_routes(sessions),
            *quota_routes(sessions),
            *transaction_routes(sessions),
            *fleet_routes(sessions, settings.telemetry),
            *fault_routes(sessions, settings.faults),
            *message_routes(sessions, closing, settings.registry),
            *_pages(),
        ],
        middleware=[Middleware(_Guarded, hosts=settings.hosts)],
        exception_handlers={LoginNeeded: _log_in, LoginRefused: _log_in, PenstockError: on_error},
        lifespan=lifespan,
    )
    app.state.closing = closing
    return app


async def _end_expired(sessions: Sessions) -> None:
    """Why: without requests, the password and the connections of an expired session would stay."""
    while True:
        await asyncio.sleep(_SWEEP_S)
        sessions.end_expired()


def _log_in(_: Request, error: Exception) -> Response:
    return as_json({"error": type(error).__name__, "message": str(error)}, 401)


def _session_routes(sessions: Sessions, settings: ConsoleSettings) -> list[Route]:
    async def session(request: Request) -> Response:
        try:
            user, logged_in = sessions.of(request).user, True
        except LoginNeeded:
            user, logged_in = None, False
        shown: dict[str, Any] = {
            "user": user,
            "logged_in": logged_in,
            "needs_login": sessions.needs_login,
            "bootstrap": [f"{host}:{port}" for host, port in settings.bootstrap],
            "trace_url": settings.trace_url,
            "telemetry": settings.telemetry is not None,
            "faults": settings.faults is not None,
        }
        return as_json(shown)

    async def login(request: Request) -> Response:
        given = await body_of(request, Credentials)
        token = await sessions.log_in(given.user, given.password)
        response = as_json({"user": given.user})
        secure = request.url.scheme == "https"
        response.set_cookie(COOKIE, token, httponly=True, samesite="strict", secure=secure)
        return response

    async def logout(request: Request) -> Response:
        sessions.log_out(request)
        response = as_json({})
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
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
        return as_json(overview(sampler.history, sampler.events, sampler.error))

    return [Route("/api/live", live), Route("/api/overview", state)]


def _pages() -> list[BaseRoute]:
    async def index(_: Request) -> Response:
        return FileResponse(STATIC / "index.html", headers={"Cache-Control": "no-cache"})

    return [Route("/", index), Mount("/static", StaticFiles(directory=STATIC))]
