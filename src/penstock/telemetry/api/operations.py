"""Routes for operators: liveness, readiness and metrics."""

from __future__ import annotations

import math
import time
from typing import Final

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.telemetry.api.answers import State
from penstock.telemetry.queries.reader import TableReader

__all__ = ["Measured", "operation_routes"]

_SECONDS: Final = (0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


def operation_routes(reader: TableReader, registry: CollectorRegistry) -> APIRouter:
    routes = APIRouter(tags=["operations"])
    newest = Gauge(
        "penstock_telemetry_newest_sample_seconds",
        "Time of the newest sample, in seconds since 1970.",
        registry=registry,
    )

    @routes.get("/healthz", summary="Liveness of the server")
    async def healthz() -> State:
        """Always 200."""
        return State(status="ok")

    @routes.get("/readyz", summary="Readiness of the server")
    def readyz() -> State:
        """503 as long as there are no tables, or they cannot be read."""
        if not reader.exists():
            # Without the place: probes need no token.
            raise HTTPException(503, "there are no tables yet")
        return State(status="ok")

    @routes.get("/metrics", summary="Metrics for Prometheus", response_class=PlainTextResponse)
    def metrics() -> Response:
        """Requests, their seconds, and the time of the newest sample (NaN if there is none)."""
        extent = reader.extent()
        newest.set((extent.end - 1) / 1000 if extent else math.nan)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return routes


class Measured:
    """Counts the requests of an application, by routes as they are declared: those are few."""

    def __init__(self, app: ASGIApp, registry: CollectorRegistry) -> None:
        self._app = app
        self._requests = Counter(
            "penstock_api_requests", "Requests answered.", ["route", "status"], registry=registry
        )
        self._seconds = Histogram(
            "penstock_api_request_seconds", "Time to answer.", ["route"], buckets=_SECONDS, registry=registry
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, noting)
        finally:
            route = getattr(scope.get("route"), "path", "none")
            self._requests.labels(route, status).inc()
            self._seconds.labels(route).observe(time.perf_counter() - began)
