"""The application: routes over one reader of tables, and the document that describes them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import Any, Final

from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse
from prometheus_client import CollectorRegistry

from penstock import __version__
from penstock.telemetry.api.admission import OwnHosts, TokenRequired
from penstock.telemetry.api.fleet import alert_routes, fleet_routes
from penstock.telemetry.api.gpus import gpu_routes
from penstock.telemetry.api.operations import Measured, operation_routes
from penstock.telemetry.api.page import operations_page
from penstock.telemetry.api.problems import MEDIA_TYPE, Problem, handle_problems
from penstock.telemetry.queries.idleness import NO_PRICES, Prices
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.thresholds import Thresholds

__all__ = ["build_app"]

#: questions that are worked on at once: each may take a core and the memory of its answer
_THREADS: Final = 8


@asynccontextmanager
async def _few_threads(_: FastAPI) -> AsyncIterator[None]:
    current_default_thread_limiter().total_tokens = _THREADS
    yield


def build_app(
    reader: TableReader,
    thresholds: Thresholds,
    token: str | None = None,
    hosts: Collection[str] = (),
    prices: Prices = NO_PRICES,
) -> FastAPI:
    """The API. Routes that read tables are plain functions: they run in worker threads.

    With `token`, requests need it. `hosts` are the names of the server beside addresses and localhost.
    """
    registry = CollectorRegistry()
    app = FastAPI(
        title="Penstock telemetry",
        version=__version__,
        summary="GPU telemetry of a fleet: series, rollups, views and alerts from the pipeline's tables.",
        lifespan=_few_threads,
        # FastAPI's own pages load their scripts from the internet.
        docs_url=None,
        redoc_url=None,
        responses={422: {"model": Problem, "description": "A parameter is wrong: which, and why"}},
    )
    handle_problems(app)
    app.add_middleware(Measured, registry=registry)
    if token is not None:
        app.add_middleware(TokenRequired, token=token)
    app.add_middleware(OwnHosts, names=hosts)
    unreadable: dict[int | str, dict[str, Any]] = {
        503: {"model": Problem, "description": "The tables cannot be read"}
    }
    for routes in (
        gpu_routes(reader),
        fleet_routes(reader, thresholds, prices),
        alert_routes(reader),
        operation_routes(reader, registry),
    ):
        app.include_router(routes, responses=unreadable)
    app.openapi = lambda: _document(app)  # type: ignore[method-assign]

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(operations_page(app.openapi()))

    return app


def _document(app: FastAPI) -> dict[str, Any]:
    """FastAPI's description of the API, with the type that problems really have."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, summary=app.summary, routes=app.routes)
        for path in document["paths"].values():
            for operation in path.values():
                for status, response in operation["responses"].items():
                    if int(status) >= 400:
                        (schema,) = response["content"].values()
                        response["content"] = {MEDIA_TYPE: schema}
        app.openapi_schema = document
    return app.openapi_schema
