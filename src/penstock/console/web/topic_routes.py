"""Routes of topics: list, page, configs, create, delete, add partitions."""

from __future__ import annotations

import asyncio
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
    delete_topic,
    describe_configs,
)
from penstock.console.kafka.cluster import Cluster, Refused
from penstock.console.kafka.offsets import EARLIEST, LATEST, list_offsets
from penstock.console.views.configs import config_diff, config_rows
from penstock.console.views.topics import TOPIC_FIELDS, topic_page, topic_rows
from penstock.console.web.answers import as_json, body_of
from penstock.console.web.sessions import Sessions

__all__ = ["topic_routes"]


class NewTopic(msgspec.Struct):
    name: str
    partitions: int = -1
    replicas: int = -1
    configs: dict[str, str] = {}
    validate: bool = False


class MorePartitions(msgspec.Struct):
    total: int


class ConfigChange(msgspec.Struct):
    """None returns a config to its default. Without `save`, the change is only validated."""

    changes: dict[str, str | None]
    save: bool = False


def topic_routes(sessions: Sessions) -> list[Route]:
    # Longer than other functions because it is a table: one entry per route.
    async def topics(request: Request) -> Response:
        session = sessions.of(request)
        await session.sampler.current()
        return as_json({"fields": TOPIC_FIELDS, "rows": topic_rows(session.sampler.history)})

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
        starts, ends = await asyncio.gather(
            list_offsets(session.cluster, leaders, EARLIEST), list_offsets(session.cluster, leaders, LATEST)
        )
        page = topic_page(session.sampler.history, name, starts, ends)
        if page is None:
            raise Refused("UNKNOWN_TOPIC_OR_PARTITION", f"there is no topic {name}, or it is not visible")
        return as_json(page)

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
        return as_json(await _change(session.cluster, request.path_params["name"], wanted))

    return [
        Route("/api/topics", topics),
        Route("/api/topics", create, methods=["POST"]),
        Route("/api/topics/{name}", topic),
        Route("/api/topics/{name}", delete, methods=["DELETE"]),
        Route("/api/topics/{name}/partitions", partitions, methods=["POST"]),
        Route("/api/topics/{name}/configs", configs),
        Route("/api/topics/{name}/configs", change_configs, methods=["POST"]),
    ]


async def _change(cluster: Cluster, name: str, wanted: ConfigChange) -> dict[str, Any]:
    """The difference, validated by the broker, and saved if the user has confirmed it."""
    rows = config_rows(await describe_configs(cluster, TOPIC, name))
    lines, effective = config_diff(rows, wanted.changes)
    if effective:
        await alter_configs(cluster, TOPIC, name, effective, validate_only=not wanted.save)
    return {"diff": lines, "saved": wanted.save and bool(effective)}
