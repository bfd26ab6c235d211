"""Requires a bearer token for every route but those of liveness and readiness."""

from __future__ import annotations

import hmac
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from penstock.telemetry.api.problems import MEDIA_TYPE, Problem

__all__ = ["TokenRequired"]

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
