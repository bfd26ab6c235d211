"""Routes of groups. Names of groups are in the query string: they may have any character."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.cluster import Refused
from penstock.console.kafka.groups import commits_of, delete_group, describe_group, plan_reset, reset
from penstock.console.kafka.offsets import EARLIEST, LATEST, list_offsets
from penstock.console.views.groups import TARGETS, Target, group_of, group_rows, offset_rows
from penstock.console.views.lag_ring import joined
from penstock.console.views.samples import as_points, lag_cells
from penstock.console.web.answers import BadInput, as_json, body_of
from penstock.console.web.sessions import Session, Sessions
from penstock.observability.lag import Lag

__all__ = ["group_routes"]


class Reset(msgspec.Struct):
    """Without `save`, only the changes are returned. No topics stands for those with a commit."""

    target: str
    value: str = "0"
    topics: list[str] = []
    save: bool = False


def group_routes(sessions: Sessions) -> list[Route]:
    async def groups(request: Request) -> Response:
        session = sessions.of(request)
        sample = await session.sampler.current()
        gap = sample.gaps.get("groups")
        rows = group_rows(session.sampler.history)
        return as_json({"groups": rows, "gap": None if gap is None else gap.shown()})

    async def group(request: Request) -> Response:
        session, name = sessions.of(request), _name(request)
        page = await _page(session, name)
        return as_json({**page, "series": joined(sessions.lags.ring.points(name), page["series"])})

    async def change(request: Request) -> Response:
        session, name = sessions.of(request), _name(request)
        wanted = await body_of(request, Reset)
        kind, coordinator = await _kind(session, name)
        commits, _ = await commits_of(session.cluster, name, kind, coordinator)
        moves = await plan_reset(session.cluster, commits, wanted.topics, _target(wanted))
        if wanted.save:
            await reset(session.cluster, name, kind, moves)
            await session.sampler.refresh()
        return as_json({"moves": [move.shown() for move in moves], "saved": wanted.save})

    async def delete(request: Request) -> Response:
        session = sessions.of(request)
        await delete_group(session.cluster, _name(request))
        await session.sampler.refresh()
        return as_json({})

    return [
        Route("/api/groups", groups),
        Route("/api/group", group),
        Route("/api/group", delete, methods=["DELETE"]),
        Route("/api/group/reset", change, methods=["POST"]),
    ]


def _name(request: Request) -> str:
    name = request.query_params.get("name")
    if not name:
        raise BadInput("name the group with ?name=")
    return name


def _target(wanted: Reset) -> Target:
    if wanted.target not in TARGETS:
        raise BadInput(f"target={wanted.target!r} is not one of {', '.join(TARGETS)}")
    try:
        return Target(wanted.target, int(wanted.value or "0"))
    except ValueError as error:
        raise BadInput(f"{wanted.value!r} is not a whole number") from error


async def _kind(session: Session, name: str) -> tuple[str, int]:
    """The type of a group and its coordinator, as the last sample has them."""
    found = group_of(await session.sampler.current(), name) or group_of(await session.sampler.refresh(), name)
    if found is None:
        raise Refused("GROUP_ID_NOT_FOUND", f"there is no group {name}, or it is not visible")
    return found.kind, found.coordinator


async def _page(session: Session, name: str) -> dict[str, Any]:
    kind, _ = await _kind(session, name)
    described = await describe_group(session.cluster, name, kind)
    commits, lags = await commits_of(session.cluster, name, kind, described["coordinator"])
    sample = await session.sampler.current()
    if kind == "streams":
        # A topic may have fewer partitions than the tasks that read it.
        for assigned in (each for member in described["members"] for each in member["assignment"]):
            known_partitions = sample.by_topic.get(assigned["topic"], ())
            there = {partition for _, partition in known_partitions}
            assigned["partitions"] = [each for each in assigned["partitions"] if each in there]
    wanted = {*commits}
    wanted |= {
        (each["topic"], partition)
        for member in described["members"]
        for each in member["assignment"]
        for partition in each["partitions"]
    }
    if kind != "share":
        wanted |= {key for topic in {key[0] for key in commits} for key in sample.by_topic.get(topic, ())}
    leaders = {key: sample.partitions[key].leader for key in wanted if key in sample.partitions}
    leaders = {key: leader for key, leader in leaders.items() if leader >= 0}
    uncommitted = {} if kind == "share" else {k: v for k, v in leaders.items() if k not in commits}
    ends, starts = await asyncio.gather(
        list_offsets(session.cluster, leaders, LATEST), list_offsets(session.cluster, uncommitted, EARLIEST)
    )
    rows = offset_rows(commits, ends, described["members"], lags, starts)
    known = [row["lag"] for row in rows if row["lag"] is not None]
    lag = Lag(sum(known), len(known) == len(rows), sum(row["committed"] is None for row in rows))
    return {
        **described,
        "offsets": rows,
        **lag_cells(lag if known else None),
        "series": as_points(session.sampler.history.groups.get(name)),
    }
