"""Routes of the schema registry: subjects, versions, differences, compatibility, drafts, deletion.

All users of a console share its credentials in the registry, so the brokers' rights decide. Users see the
subjects of topics that they see, and all of them with Describe on the cluster. Changes need Alter on the
cluster (ADR 72).
Names of subjects are in the query string: they may have any character.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.cluster import NotReachable, Refused
from penstock.console.kafka.reading import layout_of
from penstock.console.kafka.rights import cluster_operations
from penstock.console.kafka.workers import in_worker
from penstock.console.registry.api import NotFound, RegistryApi
from penstock.console.registry.decoding import SchemaRegistry
from penstock.console.views.knowledge import UNKNOWN, Gap
from penstock.console.views.schemas import (
    LEVELS,
    PARTS,
    TYPES,
    Draft,
    SchemaVersion,
    diff_lines,
    schema_text,
    subject_of,
    subject_rows,
    topic_of,
    version_view,
)
from penstock.console.web.answers import BadInput, as_json, body_of
from penstock.console.web.sessions import Session, Sessions
from penstock.registry.http import RegistryRefused, RegistryUnreachable

__all__ = ["schema_routes"]

_VERSIONS_MAX: Final = 1_000
_USES_MAX: Final = 200
_BODY_MAX: Final = 2 << 20
_NUMBER_MAX: Final = (1 << 31) - 1
_RIGHT: Final = "CLUSTER_AUTHORIZATION_FAILED"


class Rights(NamedTuple):
    """What a user may do with the registry, and why it may change nothing."""

    sees_all: bool
    refusal: str | None

    def check_change(self) -> None:
        if self.refusal is not None:
            raise Refused(_RIGHT, self.refusal)


class Registration(msgspec.Struct):
    subject: str
    draft: Draft

    def check(self) -> None:
        if not self.subject.strip():
            raise BadInput("the subject has no name")
        if not self.draft.schema.strip():
            raise BadInput("the schema is empty")
        if self.draft.kind not in TYPES:
            raise BadInput(f"type {self.draft.kind!r} is not one of {', '.join(TYPES)}")


class LevelChange(msgspec.Struct):
    """No subject stands for all; no level returns a subject to that of all."""

    subject: str | None = None
    level: str | None = None


def schema_routes(sessions: Sessions, api: RegistryApi | None, known: SchemaRegistry | None) -> list[Route]:
    async def unconfigured(request: Request) -> Response:
        sessions.of(request)
        return as_json({"configured": False})

    if api is None or known is None:
        return [Route("/api/schemas", unconfigured)]
    return [*_reading(sessions, api), *_changing(sessions, api, known)]


def _reading(sessions: Sessions, api: RegistryApi) -> list[Route]:
    # Longer than other functions because it is a table: one entry per route.
    async def subjects(request: Request) -> Response:
        session = sessions.of(request)
        rights, (live, deleted), level = await asyncio.gather(
            _rights(sessions, session, api), api.subjects(), _level(api, None)
        )
        topics = await _topics(session, rights)
        rows = await in_worker(partial(subject_rows, live, deleted, topics))
        if not rights.sees_all:
            rows = [row for row in rows if row["topic"] is not None]
        shown = {"configured": True, "url": api.url, "subjects": rows, "all": rights.sees_all}
        return as_json({**shown, "level": level, "may_change": rights.refusal is None})

    async def subject(request: Request) -> Response:
        session, name = sessions.of(request), _name(request)
        rights = await _visible(sessions, session, api, name)
        live, deleted = await api.versions(name)
        version = _number(request, "version", (live or deleted)[-1])
        found, level, referring = await asyncio.gather(
            api.version(name, version), _level(api, name), api.referring(name, version)
        )
        numbers = sorted([*((n, False) for n in live), *((n, True) for n in deleted)])
        topic, part = topic_of(name) or (None, None)
        is_known = topic in await _topics(session, rights) if rights.sees_all else True
        return as_json(
            {
                "name": name,
                "topic": topic if is_known else None,
                "part": part if is_known else None,
                "versions": [{"version": n, "deleted": gone} for n, gone in numbers[-_VERSIONS_MAX:]],
                "total": len(numbers),
                "deleted": not live,
                "level": level,
                "chosen": await in_worker(partial(version_view, found)),
                "referring": referring,
                "may_change": rights.refusal is None,
            }
        )

    async def difference(request: Request) -> Response:
        session, name = sessions.of(request), _name(request)
        await _visible(sessions, session, api, name)
        versions = [_number(request, each) for each in ("from", "to")]
        old, new = await asyncio.gather(*(api.version(name, version) for version in versions))
        return as_json({"lines": await in_worker(partial(_compared, old, new))})

    async def by_number(request: Request) -> Response:
        session, number = sessions.of(request), request.path_params["number"]
        if number > _NUMBER_MAX:
            raise BadInput(f"{number} is no number of a schema")
        rights = await _rights(sessions, session, api)
        found, uses = await asyncio.gather(api.schema(number), api.uses(number))
        if not rights.sees_all:
            topics = await _topics(session, rights)
            uses = [use for use in uses if (topic_of(use.subject) or ("",))[0] in topics]
            if not uses:
                raise _hidden(f"schema {number}")
        shown = await in_worker(partial(version_view, found))
        return as_json({**shown, "id": number, "uses": uses[:_USES_MAX], "uses_total": len(uses)})

    async def of_topic(request: Request) -> Response:
        session, name = sessions.of(request), request.path_params["name"]
        rights, _ = await asyncio.gather(_rights(sessions, session, api), layout_of(session.cluster, name))
        rows = await asyncio.gather(*(_part(api, subject_of(name, part), part) for part in PARTS))
        return as_json({"schemas": rows, "may_change": rights.refusal is None})

    return [
        Route("/api/schemas", subjects),
        Route("/api/schemas/subject", subject),
        Route("/api/schemas/difference", difference),
        Route("/api/schemas/ids/{number:int}", by_number),
        Route("/api/topics/{name}/schemas", of_topic),
    ]


def _changing(sessions: Sessions, api: RegistryApi, known: SchemaRegistry) -> list[Route]:
    async def wanted(request: Request) -> Registration:
        """The draft of a request by a user who may register it."""
        session, found = sessions.of(request), await body_of(request, Registration, _BODY_MAX)
        (await _rights(sessions, session, api)).check_change()
        found.check()
        return found

    async def check(request: Request) -> Response:
        found = await wanted(request)
        checked, level = await asyncio.gather(
            api.check(found.subject, found.draft), _level(api, found.subject)
        )
        return as_json({**checked.shown(), "level": level})

    async def register(request: Request) -> Response:
        found = await wanted(request)
        number, version = await api.register(found.subject, found.draft)
        known.forget_missing()
        return as_json({"id": number, "version": version})

    async def change_level(request: Request) -> Response:
        session, found = sessions.of(request), await body_of(request, LevelChange)
        (await _rights(sessions, session, api)).check_change()
        if found.level is None and found.subject is None:
            raise BadInput("the level of all subjects cannot be removed")
        if found.level is not None and found.level not in LEVELS:
            raise BadInput(f"level {found.level!r} is not one of {', '.join(LEVELS)}")
        await api.set_level(found.subject, found.level)
        return as_json({"level": await _level(api, found.subject)})

    async def delete(request: Request) -> Response:
        session, name = sessions.of(request), _name(request)
        (await _rights(sessions, session, api)).check_change()
        version = _number(request, "version") if "version" in request.query_params else None
        permanent = request.query_params.get("permanent") == "1"
        live, deleted = await api.versions(name)
        if permanent and (live if version is None else version not in deleted):
            # Not every registry checks it, and what is removed for good makes messages unreadable.
            raise BadInput("only what is deleted can be removed for good: delete it first")
        await api.delete(name, version, permanent=permanent)
        return as_json({})

    return [
        Route("/api/schemas/check", check, methods=["POST"]),
        Route("/api/schemas/register", register, methods=["POST"]),
        Route("/api/schemas/level", change_level, methods=["POST"]),
        Route("/api/schemas/subject", delete, methods=["DELETE"]),
    ]


async def _rights(sessions: Sessions, session: Session, api: RegistryApi) -> Rights:
    """Where brokers do not say rights, a console without logins has those of its visitors: all."""
    operations = await cluster_operations(session.cluster)
    trusted = operations is None and not sessions.needs_login
    refusal = None
    if api.is_read_only:
        refusal = "this console changes nothing in the schema registry (read.only)"
    elif not trusted and "alter" not in (operations or ()):
        refusal = "a change of the schema registry needs Alter on the cluster"
    return Rights(trusted or "describe" in (operations or ()), refusal)


async def _topics(session: Session, rights: Rights) -> set[str]:
    """Topics that the user sees. In an outage, a user who sees all subjects sees them without topics."""
    last = session.sampler.history.last
    if rights.sees_all and last is not None:
        return set(last.topic_ids)
    try:
        metadata = await session.cluster.metadata()
    except NotReachable:
        if not rights.sees_all:
            raise
        return set()
    return {topic.name for topic in metadata.topics if topic.name and not topic.error_code}


async def _visible(sessions: Sessions, session: Session, api: RegistryApi, subject: str) -> Rights:
    """The rights of a user who may see a subject."""
    rights = await _rights(sessions, session, api)
    if not rights.sees_all and not await _is_topic(session, subject):
        raise _hidden(f"subject {subject}")
    return rights


async def _is_topic(session: Session, subject: str) -> bool:
    """Whether a subject is that of a topic which the user sees."""
    topic = topic_of(subject)
    if topic is None:
        return False
    metadata = await session.cluster.metadata([topic[0]])
    return all(not each.error_code for each in metadata.topics)


def _hidden(what: str) -> Refused:
    reason = "it is not that of a topic which this user sees, and all others need Describe on the cluster"
    return Refused(_RIGHT, f"{what}: {reason}")


async def _level(api: RegistryApi, subject: str | None) -> dict[str, Any]:
    """A level, or why it is not known: the rest of a page is of use without it."""
    try:
        level = await api.level(subject)
    except (RegistryRefused, RegistryUnreachable) as error:
        return {"name": None, "own": False, "gap": Gap(UNKNOWN, str(error)).shown()}
    return {"name": level.name, "own": level.is_own, "gap": None}


async def _part(api: RegistryApi, subject: str, part: str) -> dict[str, Any]:
    """The newest schema of a key or a value; without a version if the subject is not there."""
    found: dict[str, Any] = {"part": part, "subject": subject, "version": None, "type": None, "id": None}
    try:
        newest = await api.version(subject, "latest")
    except NotFound:
        return {**found, "gap": None}
    except (RegistryRefused, RegistryUnreachable) as error:
        return {**found, "gap": Gap(UNKNOWN, str(error)).shown()}
    return {**found, "version": newest.version, "type": newest.kind, "id": newest.id, "gap": None}


def _compared(old: SchemaVersion, new: SchemaVersion) -> list[tuple[str, str]] | None:
    (before, cut_before), (after, cut_after) = (schema_text(each.kind, each.schema) for each in (old, new))
    return None if cut_before or cut_after else diff_lines(before, after)


def _name(request: Request) -> str:
    name = request.query_params.get("name")
    if not name:
        raise BadInput("name the subject with ?name=")
    return name


def _number(request: Request, name: str, default: int | None = None) -> int:
    text = request.query_params.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal() or len(text) > 10:
        raise BadInput(f"{name}={text!r} is not the number of a version")
    return int(text)
