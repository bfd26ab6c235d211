"""Routes of reassignments: the balance of brokers, plans, their execution, throttles.

A plan is kept in its session until it is executed, so that what a user has seen is what is executed. Plans
and views of all partitions are made in a worker thread: a cluster may have tens of thousands of them.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.cluster import Cluster, NotReachable, Refused, gap_of_error
from penstock.console.kafka.placement import list_moves
from penstock.console.kafka.reassigning import (
    MovesFollower,
    excluded_brokers,
    keep_empty,
    limit,
    read_limits,
    release,
    start_moves,
)
from penstock.console.views.reassignment import (
    Plan,
    balance_view,
    changed_since,
    make_plan,
    plan_view,
    planned_move,
    throttle_view,
)
from penstock.console.views.samples import Key, Sample, partitions_of
from penstock.console.views.topology import moves, replica_sizes
from penstock.console.web.answers import BadInput, as_json, body_of
from penstock.console.web.sessions import Session, Sessions
from penstock.wire.apis.describe_cluster import DescribeClusterBroker
from penstock.wire.apis.list_partition_reassignments import ListPartitionReassignmentsResponse
from penstock.wire.apis.metadata import MetadataResponse

__all__ = ["Planner", "reassignment_routes"]

T = TypeVar("T")
#: one plan at a time: it takes a core while it is made
_POOL: Final = ThreadPoolExecutor(1, thread_name_prefix="console-plans")
#: moves that a user chooses by hand in one request
_BY_HAND_MAX: Final = 1000
_Rate = Annotated[int, msgspec.Meta(ge=1, le=2**62)]
_Broker = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class Planner(Protocol):
    """Proposes few moves that balance the brokers."""

    def __call__(
        self,
        brokers: Iterable[DescribeClusterBroker],
        metadata: MetadataResponse,
        moving: ListPartitionReassignmentsResponse,
        loads: Mapping[Key, int],
        leaving: Collection[int],
        excluded: Collection[int],
    ) -> list[tuple[str, int, list[int]]]:
        """(topic, partition, replicas); brokers that are `leaving` end up empty."""
        ...


class Wish(msgspec.Struct):
    """What a plan is to reach: of topics whose name contains `topics`, by numbers or also by bytes."""

    topics: str = ""
    leaving: list[_Broker] = []
    by: Literal["replicas", "bytes"] = "replicas"


class Execution(msgspec.Struct):
    plan: str
    throttle: _Rate | None = None
    keep_empty: bool = False


class Place(msgspec.Struct):
    topic: str
    partition: int
    replicas: Annotated[list[_Broker], msgspec.Meta(min_length=1, max_length=100)]


class ByHand(msgspec.Struct):
    moves: Annotated[list[Place], msgspec.Meta(min_length=1, max_length=_BY_HAND_MAX)]
    throttle: _Rate | None = None


class Cancellation(msgspec.Struct):
    """No partitions stands for all that are moving."""

    partitions: list[tuple[str, int]] | None = None


class _Reassigning:
    """What one session has planned and started."""

    def __init__(self, session: Session) -> None:
        self.plan: tuple[str, Plan] | None = None
        self.follower = MovesFollower(session.cluster)

    def close(self) -> None:
        self.follower.close()


def reassignment_routes(sessions: Sessions, planner: Planner | None) -> list[Route]:
    # Longer than other functions because it is a table: one entry per route.
    async def state(request: Request) -> Response:
        session = sessions.of(request)
        sample = await session.sampler.current()
        ongoing, gap = await _ongoing(session.cluster)
        limits = await read_limits(session.cluster, [broker.node_id for broker in sample.metadata.brokers])

        def shown() -> Response:
            found = None if ongoing is None else moves(ongoing, sample, replica_sizes(sample))
            return as_json(
                {
                    **balance_view(sample),
                    "moves": found,
                    "moves_gap": gap,
                    "throttle": throttle_view(limits),
                    "followed": _of(session).follower.is_busy,
                    "plans": planner is not None,
                }
            )

        return await _in_thread(shown)

    async def plan(request: Request) -> Response:
        session, wish = sessions.of(request), await body_of(request, Wish)
        if planner is None:
            raise Refused("UNSUPPORTED", "this console makes no plans: start it with `penstock console`")
        sample = await session.sampler.refresh()
        ongoing = await list_moves(session.cluster)
        excluded, unsure = await _excluded(session.cluster, sample)
        brokers = _brokers(sample)
        unknown = set(wish.leaving) - {broker.broker_id for broker in brokers}
        if unknown:
            raise BadInput(f"there is no broker {min(unknown)} in the cluster")

        def made() -> tuple[Plan, Response]:
            loads = sample.sizes if wish.by == "bytes" else {}
            proposed = planner(brokers, sample.metadata, ongoing, loads, wish.leaving, excluded)
            found = make_plan(sample, proposed, wish.leaving, wish.topics)
            shown = plan_view(sample, found)
            return found, as_json({**shown, "plan": name, "excluded": excluded, "unsure": unsure})

        name = secrets.token_urlsafe(9)
        found, response = await _in_thread(made)
        _of(session).plan = (name, found)
        return response

    async def execute(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, Execution)
        own = _of(session)
        if own.plan is None or own.plan[0] != wanted.plan:
            raise Refused("STALE_PLAN", "this plan is no longer known: make a new one")
        found = own.plan[1]
        await _check_fresh(session.cluster, found)
        if wanted.keep_empty and found.leaving:
            await keep_empty(session.cluster, found.leaving)
        shown = await _start(session, found, wanted.throttle)
        own.plan = None
        return as_json(shown)

    async def by_hand(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, ByHand)
        sample = await session.sampler.refresh()
        chosen = []
        for each in wanted.moves:
            key = (each.topic, each.partition)
            if key not in sample.partitions:
                raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"there is no partition {key[0]}-{key[1]}")
            if len(set(each.replicas)) < len(each.replicas):
                raise BadInput(f"{key[0]}-{key[1]}: a broker is named twice")
            chosen.append(planned_move(sample, key, each.replicas))
        return as_json(await _start(session, Plan(chosen), wanted.throttle))

    async def cancel(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, Cancellation)
        ongoing = await list_moves(session.cluster)
        moving = {(topic.name, p.partition_index) for topic in ongoing.topics for p in topic.partitions}
        chosen = moving if wanted.partitions is None else moving & set(wanted.partitions)
        refused = await start_moves(session.cluster, dict.fromkeys(chosen))
        if refused and len(refused) == len(chosen):
            raise Refused("NOT_CANCELLED", _reason(refused[0]))
        if len(chosen) == len(moving) and not refused:
            await _release_all(session)
        await session.sampler.refresh()
        return as_json({"cancelled": len(chosen) - len(refused)})

    async def end_throttle(request: Request) -> Response:
        session = sessions.of(request)
        ended = await _release_all(session)
        return as_json({"ended": ended})

    return [
        Route("/api/reassignment", state),
        Route("/api/reassignment/plan", plan, methods=["POST"]),
        Route("/api/reassignment/execute", execute, methods=["POST"]),
        Route("/api/reassignment/move", by_hand, methods=["POST"]),
        Route("/api/reassignment/cancel", cancel, methods=["POST"]),
        Route("/api/reassignment/throttle/end", end_throttle, methods=["POST"]),
    ]


def _of(session: Session) -> _Reassigning:
    """The plans and moves of a session, which end with it."""
    if session.reassigning is None:
        session.reassigning = _Reassigning(session)
    assert isinstance(session.reassigning, _Reassigning)
    return session.reassigning


async def _in_thread(function: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(_POOL, function)


async def _ongoing(
    cluster: Cluster,
) -> tuple[ListPartitionReassignmentsResponse | None, dict[str, Any] | None]:
    try:
        return await list_moves(cluster), None
    except (Refused, NotReachable) as error:
        return None, gap_of_error(error).shown()


async def _excluded(cluster: Cluster, sample: Sample) -> tuple[list[int], str | None]:
    """Brokers that receive nothing, and why they are not known."""
    controller = sample.metadata.controller_id if sample.quorum is None else sample.quorum.leader_id
    try:
        return await excluded_brokers(cluster, controller), None
    except (Refused, NotReachable) as error:
        return [], str(error)


def _brokers(sample: Sample) -> list[DescribeClusterBroker]:
    """All brokers, those that are fenced too if the cluster describes them."""
    if sample.cluster is not None:
        return list(sample.cluster.brokers)
    return [
        DescribeClusterBroker(broker_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in sample.metadata.brokers
    ]


async def _check_fresh(cluster: Cluster, plan: Plan) -> None:
    """Refuse a plan if replicas have changed since it was made: it might move them back."""
    metadata = await cluster.metadata(sorted({move.topic for move in plan.moves}))

    def changed() -> list[Key]:
        now = partitions_of(metadata)
        return changed_since(plan, {key: partition.replicas for key, partition in now.items()})

    if found := await _in_thread(changed):
        topic, partition = found[0]
        raise Refused(
            "STALE_PLAN",
            f"the replicas of {topic}-{partition} have changed since the plan was made: make a new one",
        )


async def _start(session: Session, plan: Plan, rate: int | None) -> dict[str, Any]:
    """Throttle and start moves, and follow them to their end."""
    topics = {move.topic for move in plan.moves if move.copies_data}
    brokers = [broker.node_id for broker in (await session.cluster.metadata([])).brokers]
    if rate is not None and topics:
        await limit(session.cluster, brokers, topics, rate)
    try:
        refused = await start_moves(session.cluster, {move.key: move.after for move in plan.moves})
        if refused and len(refused) == len(plan.moves):
            raise Refused("NOT_STARTED", _reason(refused[0]))
    except Refused:
        if rate is not None and topics and not (await list_moves(session.cluster)).topics:
            await release(session.cluster, brokers, topics)
        raise
    _of(session).follower.follow([move.key for move in plan.moves], () if rate is None else topics)
    await session.sampler.refresh()
    return {
        "started": len(plan.moves) - len(refused),
        "refused": len(refused),
        "reason": _reason(refused[0]) if refused else None,
    }


async def _release_all(session: Session) -> int:
    """End the throttle of all brokers and topics."""
    metadata = await session.cluster.metadata()
    brokers = [broker.node_id for broker in metadata.brokers]
    return await release(session.cluster, brokers, [topic.name or "" for topic in metadata.topics])


def _reason(refused: tuple[str, int, str]) -> str:
    topic, partition, reason = refused
    return f"{topic}-{partition}: {reason}"
