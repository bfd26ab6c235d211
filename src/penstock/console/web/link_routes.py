"""Routes of the page about links to other clusters; they change nothing."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.links import describe_link, list_links
from penstock.console.web.answers import as_json
from penstock.console.web.sessions import Sessions
from penstock.net.link_reports import MirroredPartition

__all__ = ["link_routes"]

#: numbers that a browser would round above 2^53
_OFFSETS: Final = ("end_offset", "source_end", "missed")


def link_routes(sessions: Sessions) -> list[Route]:
    async def links(request: Request) -> Response:
        """`links` is null if the cluster has no such thing."""
        found = await list_links(sessions.of(request).cluster)
        return as_json({"links": found and [asdict(each) for each in found]})

    async def link(request: Request) -> Response:
        found = await describe_link(sessions.of(request).cluster, request.query_params.get("name", ""))
        partitions = [_row(each) for each in found.partitions]
        configs, problems = found.configs, found.problems
        return as_json(
            {"link": found.link, "configs": configs, "problems": problems, "partitions": partitions}
        )

    return [Route("/api/links", links), Route("/api/link", link)]


def _row(partition: MirroredPartition) -> dict[str, Any]:
    row = asdict(partition)
    end, source = partition.end_offset, partition.source_end
    row["lag_records"] = None if end is None or source is None else max(0, source - end)
    return row | {name: None if row[name] is None else str(row[name]) for name in _OFFSETS}
