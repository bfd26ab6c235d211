"""Routes of topics: list, page, configs, create, delete, add partitions."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.changes import (
    TOPIC,
    add_partitions,
    alter_configs,
    create_topic,
    delete_records,
    delete_topic,
    describe_configs,
)
from penstock.console.kafka.cluster import Cluster, NotReachable, Refused
from penstock.console.kafka.offsets import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, list_offsets
from penstock.console.kafka.reading import layout_of
from penstock.console.kafka.rights import topic_rights
from penstock.console.views.configs import config_diff, config_rows
from penstock.console.views.samples import Key
from penstock.console.views.topics import TOPIC_COLUMNS, TopicOffsets, topic_page, topic_rows
from penstock.console.web.answers import as_json, body_of, offset_of
from penstock.console.web.sessions import Sessions

__all__ = ["ConfigChange", "change_configs_of", "topic_routes"]


class NewTopic(msgspec.Struct):
    name: str
    partitions: int = -1
    replicas: int = -1
    configs: dict[str, str] = {}
    validate: bool = False


class MorePartitions(msgspec.Struct):
    total: int


class Cut(msgspec.Struct):
    """Delete the records before these offsets, by partition. Both are strings: offsets have 64 bits."""

    before: dict[str, str]


class ConfigChange(msgspec.Struct):
    """None returns a config to its default. Without `save`, the change is only validated."""

    changes: dict[str, str | None]
    save: bool = False


def topic_routes(sessions: Sessions) -> list[Route]:
    # Longer than other functions because it is a table: one entry per route.
    async def topics(request: Request) -> Response:
        session = sessions.of(request)
        sample = await session.sampler.current()
        gap = sample.gaps.get("topics")
        rows = topic_rows(session.sampler.history)
        return as_json({"columns": TOPIC_COLUMNS, "rows": rows, "gap": None if gap is None else gap.shown()})

    async def create(request: Request) -> Response:
        session, new = sessions.of(request), await body_of(request, NewTopic)
        await create_topic(
            session.cluster, new.name, new.partitions, new.replicas, new.configs, validate_only=new.validate
        )
        if not new.validate:
            await session.sampler.refresh()
        return as_json({"name": new.name})

    async def topic(request: Request) -> Response:
        session, name = sessions.of(request), request.path_params["name"]
        sample = await session.sampler.current()
        if name not in sample.topic_ids:
            sample = await session.sampler.refresh()
        leaders = {key: p.leader for key, p in sample.partitions.items() if key[0] == name and p.leader >= 0}
        starts, ends, tiers = await asyncio.gather(
            list_offsets(session.cluster, leaders, EARLIEST),
            list_offsets(session.cluster, leaders, LATEST),
            _tiers(session.cluster, name, leaders),
        )
        page = topic_page(session.sampler.history, name, TopicOffsets(starts, ends, *tiers))
        if page is None:
            raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"there is no topic {name}, or it is not visible")
        return as_json(page)

    async def exists(request: Request) -> Response:
        """What the user may do; 404 for a topic that does not exist, or that this user may not see."""
        cluster, name = sessions.of(request).cluster, request.path_params["name"]
        await layout_of(cluster, name)
        return as_json({"rights": await topic_rights(cluster, name)})

    async def cut(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, Cut)
        layout = await layout_of(session.cluster, request.path_params["name"])
        before = {int(partition): offset_of(offset) for partition, offset in wanted.before.items()}
        starts = await delete_records(session.cluster, layout, before)
        return as_json({"starts": {str(partition): str(start) for partition, start in starts.items()}})

    async def delete(request: Request) -> Response:
        session = sessions.of(request)
        await delete_topic(session.cluster, request.path_params["name"])
        await session.sampler.refresh()
        return as_json({})

    async def partitions(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, MorePartitions)
        await add_partitions(session.cluster, request.path_params["name"], wanted.total)
        await session.sampler.refresh()
        return as_json({})

    async def configs(request: Request) -> Response:
        session, name = sessions.of(request), request.path_params["name"]
        return as_json({"configs": config_rows(await describe_configs(session.cluster, TOPIC, name))})

    async def change_configs(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, ConfigChange)
        name = request.path_params["name"]
        return as_json(await change_configs_of(session.cluster, TOPIC, name, wanted))

    return [
        Route("/api/topics", topics),
        Route("/api/topics", create, methods=["POST"]),
        Route("/api/topics/{name}", topic),
        Route("/api/topics/{name}", delete, methods=["DELETE"]),
        Route("/api/topics/{name}/exists", exists),
        Route("/api/topics/{name}/cut", cut, methods=["POST"]),
        Route("/api/topics/{name}/partitions", partitions, methods=["POST"]),
        Route("/api/topics/{name}/configs", configs),
        Route("/api/topics/{name}/configs", change_configs, methods=["POST"]),
    ]


async def _tiers(
    cluster: Cluster, name: str, leaders: Mapping[Key, int]
) -> tuple[Mapping[Key, int], Mapping[Key, int]]:
    """The first offsets on disks, and the last ones in the archive; none of a topic that is not tiered.

    Why configs: brokers that do not know tiered storage may take these requests for times.
    """
    try:
        configs = (await describe_configs(cluster, TOPIC, name)).configs
    except (NotReachable, Refused):
        return {}, {}
    if not any((each.name, each.value) == ("remote.storage.enable", "true") for each in configs):
        return {}, {}
    local, copied = await asyncio.gather(
        list_offsets(cluster, leaders, EARLIEST_LOCAL), list_offsets(cluster, leaders, LATEST_TIERED)
    )
    return local, copied


async def change_configs_of(cluster: Cluster, kind: int, name: str, wanted: ConfigChange) -> dict[str, Any]:
    """The difference of a resource, validated by the broker, and saved if the user has confirmed it."""
    rows = config_rows(await describe_configs(cluster, kind, name))
    lines, effective = config_diff(rows, wanted.changes)
    if effective:
        await alter_configs(cluster, kind, name, effective, validate_only=not wanted.save)
    return {"diff": lines, "saved": wanted.save and bool(effective)}
