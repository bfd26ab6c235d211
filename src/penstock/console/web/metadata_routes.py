"""Routes of the metadata log: whether there is one to read, its timeline, and differences."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.cluster import Refused
from penstock.console.kafka.metadata_log import NoControllerListener
from penstock.console.views.metadata_log import MetadataLog, difference
from penstock.console.web.answers import BadInput, as_json, whole
from penstock.console.web.sessions import Sessions

__all__ = ["metadata_routes"]

_LIMIT_MAX = 500


def metadata_routes(sessions: Sessions) -> list[Route]:
    async def available(request: Request) -> Response:
        try:
            await sessions.of(request).metadata.refresh(lambda _: None)
        except (NoControllerListener, Refused) as error:
            return as_json({"available": False, "reason": str(error)})
        return as_json({"available": True, "reason": None})

    async def timeline(request: Request) -> Response:
        query = request.query_params
        limit = whole(request, "limit", 200, 1, _LIMIT_MAX)

        def page(log: MetadataLog) -> dict[str, Any]:
            before = _moment(request, log, "before") if "before" in query or "before_time" in query else None
            return log.page(query.get("q", ""), query.get("kind", ""), before, limit)

        return as_json(await sessions.of(request).metadata.refresh(page))

    async def compared(request: Request) -> Response:
        def compare(log: MetadataLog) -> dict[str, Any]:
            first, last = sorted((_moment(request, log, "from"), _moment(request, log, "to")))
            found = difference(log.state_at(first), log.state_at(last))
            return {"from": str(first), "to": str(last), **found}

        return as_json(await sessions.of(request).metadata.refresh(compare))

    return [
        Route("/api/metadata", available),
        Route("/api/metadata/log", timeline),
        Route("/api/metadata/diff", compared),
    ]


def _moment(request: Request, log: MetadataLog, name: str) -> int:
    """An offset: `name` itself, or the last one at or before `name_time` in milliseconds."""
    query = request.query_params
    time_ms, offset = query.get(f"{name}_time"), query.get(name)
    try:
        found = log.offset_at(int(time_ms)) if time_ms is not None else int(offset or "")
    except ValueError as error:
        raise BadInput(f"{name} needs an offset, or a time in milliseconds as {name}_time") from error
    return max(log.start, min(log.position - 1, found))
