"""The route of the topology page: clients, topics, and which client reads or writes which topic."""

from __future__ import annotations

import asyncio
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.traffic import find_members, find_writers
from penstock.console.kafka.workers import in_worker
from penstock.console.views.traffic import choose, partitions_to_ask, traffic_view
from penstock.console.web.answers import as_json
from penstock.console.web.sessions import Sessions

__all__ = ["traffic_routes"]


def traffic_routes(sessions: Sessions) -> list[Route]:
    async def topology(request: Request) -> Response:
        session = sessions.of(request)
        sample = await session.sampler.current()
        rate = session.sampler.history.record_rate
        text = request.query_params.get("q", "")
        internal = request.query_params.get("internal") == "1"
        chosen = await in_worker(partial(choose, sample, rate, text, internal=internal))
        (writers, unknown), members = await asyncio.gather(
            find_writers(session.cluster, partitions_to_ask(sample, chosen.topics)),
            find_members(session.cluster, chosen.groups),
        )
        gaps = {name: sample.gaps.get(name) for name in ("topics", "groups")} | {"producers": unknown}
        return as_json(await in_worker(partial(traffic_view, sample, rate, chosen, writers, members, gaps)))

    return [Route("/api/topology", topology)]
