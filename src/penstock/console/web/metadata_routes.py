"""Routes of the metadata log: whether there is one to read, its timeline, and differences."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.metadata_log import NoControllerListener
from penstock.console.views.metadata_log import MetadataLog, difference
from penstock.console.web.answers import BadInput, as_json, whole
from penstock.console.web.sessions import Sessions

__all__ = ["metadata_routes"]

_LIMIT_MAX = 500


def metadata_routes(sessions: Sessions) -> list[Route]:
    async def available(request: Request) -> Response:
        try:
            await sessions.of(request).metadata.refresh()
        except NoControllerListener as error:
            return as_json({"available": False, "reason": str(error)})
        return as_json({"available": True, "reason": None})

    async def timeline(request: Request) -> Response:
        log = await sessions.of(request).metadata.refresh()
        query = request.query_params
        before = _moment(request, log, "before") if "before" in query or "before_time" in query else None
        limit = whole(request, "limit", 200, 1, _LIMIT_MAX)
        return as_json(log.page(query.get("q", ""), query.get("kind", ""), before, limit))

    async def compared(request: Request) -> Response:
        log = await sessions.of(request).metadata.refresh()
        first, last = sorted((_moment(request, log, "from"), _moment(request, log, "to")))
        found = difference(log.state_at(first), log.state_at(last))
        return as_json({"from": str(first), "to": str(last), **found})

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
