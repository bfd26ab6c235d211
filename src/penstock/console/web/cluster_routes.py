"""Routes of the cluster page: topology, moves, elections, configs of brokers."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.changes import BROKER, describe_configs
from penstock.console.kafka.cluster import NotReachable, Refused, gap_of_error
from penstock.console.kafka.placement import elect_preferred, list_moves
from penstock.console.views.configs import config_rows
from penstock.console.views.topology import moves, replica_sizes, topology
from penstock.console.web.answers import as_json, body_of
from penstock.console.web.sessions import Sessions
from penstock.console.web.topic_routes import ConfigChange, change_configs_of

__all__ = ["cluster_routes"]


class Place(msgspec.Struct):
    topic: str
    partition: int


class Election(msgspec.Struct):
    """No partitions stands for all."""

    partitions: list[Place] | None = None


def cluster_routes(sessions: Sessions) -> list[Route]:
    async def cluster(request: Request) -> Response:
        sample = await sessions.of(request).sampler.current()
        text, internal = request.query_params.get("q", ""), request.query_params.get("internal")
        return as_json(topology(sample, text, internal=internal == "1"))

    async def ongoing(request: Request) -> Response:
        """Apart from the map: without a controller the answer takes until a timeout."""
        session = sessions.of(request)
        sample = await session.sampler.current()
        try:
            found = moves(await list_moves(session.cluster), sample, replica_sizes(sample))
        except (Refused, NotReachable) as error:
            return as_json({"moves": None, "moves_gap": gap_of_error(error).shown()})
        return as_json({"moves": found, "moves_gap": None})

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

    async def change_configs(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, ConfigChange)
        broker = str(request.path_params["broker"])
        return as_json(await change_configs_of(session.cluster, BROKER, broker, wanted))

    return [
        Route("/api/brokers/{broker:int}/configs", change_configs, methods=["POST"]),
        Route("/api/cluster", cluster),
        Route("/api/cluster/moves", ongoing),
        Route("/api/cluster/election", elect, methods=["POST"]),
        Route("/api/brokers/{broker:int}/configs", configs),
    ]
