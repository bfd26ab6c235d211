"""Routes of the cluster page: topology, moves, elections, configs of brokers."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.changes import BROKER, describe_configs
from penstock.console.kafka.cluster import NotReachable, Refused
from penstock.console.kafka.placement import elect_preferred, list_moves, reassign
from penstock.console.views.configs import config_rows
from penstock.console.views.topology import moves, replica_sizes, topology
from penstock.console.web.answers import as_json, body_of
from penstock.console.web.sessions import Sessions

__all__ = ["cluster_routes"]


class Place(msgspec.Struct):
    """None for the replicas cancels a move."""

    topic: str
    partition: int
    replicas: list[int] | None = None


class Election(msgspec.Struct):
    """No partitions stands for all."""

    partitions: list[Place] | None = None


def cluster_routes(sessions: Sessions) -> list[Route]:
    async def cluster(request: Request) -> Response:
        session = sessions.of(request)
        sample = await session.sampler.current()
        shown = topology(sample, request.query_params.get("q", ""))
        try:
            ongoing = moves(await list_moves(session.cluster), sample, replica_sizes(sample))
        except (Refused, NotReachable):
            return as_json({**shown, "moves": None})
        return as_json({**shown, "moves": ongoing})

    async def move(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, list[Place])
        await reassign(session.cluster, {(each.topic, each.partition): each.replicas for each in wanted})
        await session.sampler.refresh()
        return as_json({})

    async def elect(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, Election)
        chosen = wanted.partitions
        keys = None if chosen is None else [(each.topic, each.partition) for each in chosen]
        elected = await elect_preferred(session.cluster, keys)
        await session.sampler.refresh()
        return as_json({"elected": elected})

    async def configs(request: Request) -> Response:
        session, broker = sessions.of(request), request.path_params["broker"]
        result = await describe_configs(session.cluster, BROKER, str(broker))
        return as_json({"configs": config_rows(result)})

    return [
        Route("/api/cluster", cluster),
        Route("/api/cluster/moves", move, methods=["POST"]),
        Route("/api/cluster/election", elect, methods=["POST"]),
        Route("/api/brokers/{broker:int}/configs", configs),
    ]
