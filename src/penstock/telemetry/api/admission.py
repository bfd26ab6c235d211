"""Refuses requests for other host names, and requests without the token.

A page whose name resolves to this server is another host name (DNS rebinding).
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.security.hosts import host_name, is_own_host
from penstock.telemetry.api.problems import MEDIA_TYPE, Problem

__all__ = ["OwnHosts", "TokenRequired"]


class OwnHosts:
    """Serves addresses, `localhost` and the names of this server."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        host = Headers(scope=scope).get("host", "")
        if is_own_host(host, self._names):
            await self._app(scope, receive, send)
            return
        status = HTTPStatus.MISDIRECTED_REQUEST
        problem = Problem(
            title=status.phrase,
            status=status,
            detail=f"this server does not serve {host_name(host)[:200]!r}: allow it with --allow-host",
        )
        await JSONResponse(problem.model_dump(), status, media_type=MEDIA_TYPE)(scope, receive, send)


#: probes have no token, and learn nothing but that the server works
_OPEN: Final = ("/healthz", "/readyz")


class TokenRequired:
    """Refuses requests without the token. Routes that are added later need it, too."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or scope.get("path") in _OPEN or self._is_authorized(scope):
            await self._app(scope, receive, send)
            return
        problem = Problem(
            title=HTTPStatus.UNAUTHORIZED.phrase,
            status=HTTPStatus.UNAUTHORIZED,
            detail="send the server's token: Authorization: Bearer TOKEN",
        )
        response = JSONResponse(
            problem.model_dump(),
            HTTPStatus.UNAUTHORIZED,
            headers={"WWW-Authenticate": "Bearer"},
            media_type=MEDIA_TYPE,
        )
        await response(scope, receive, send)

    def _is_authorized(self, scope: Scope) -> bool:
        given = Headers(scope=scope).get("authorization", "")
        scheme, _, token = given.partition(" ")
        sent = f"{scheme.capitalize()} {token.strip()}".encode()
        return hmac.compare_digest(sent, self._expected)
