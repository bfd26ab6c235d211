"""Routes of security, quotas and transactions."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.access import authorizer_configs, list_roles
from penstock.console.kafka.cluster import NotReachable, Refused, gap_of_error
from penstock.console.kafka.open_transactions import abort_hanging, list_open
from penstock.console.kafka.quotas import alter_quotas, list_quotas
from penstock.console.kafka.rights import any_topic_rights, cluster_rights
from penstock.console.kafka.transactions import describe_transaction, list_transactions
from penstock.console.views.access import acl_from, acl_row, choices, explain, principal_of
from penstock.console.web.answers import BadInput, as_json, body_of, offset_of
from penstock.console.web.sessions import Sessions
from penstock.net.access_client import (
    add_acls,
    alter_members,
    list_acls,
    list_users,
    remove_acls,
    remove_user,
    revoke_user,
    set_password,
)
from penstock.security.acls import AclFilter
from penstock.security.mechanisms import DEFAULT, scrams

__all__ = ["access_routes", "quota_routes", "transaction_routes"]

T = TypeVar("T")
_ITERATIONS: Final = 8192
_QUOTA_KEYS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)
_ENTITIES = ("user", "client-id", "ip")


class User(msgspec.Struct):
    user: str
    mechanism: str = DEFAULT.name
    password: str = ""


class Revoked(msgspec.Struct):
    user: str


class Member(msgspec.Struct):
    role: str
    member: str


class Hanging(msgspec.Struct):
    topic: str
    partition: int
    start_offset: str


class Question(msgspec.Struct):
    principal: str
    operation: str
    resource: str
    name: str = ""
    host: str = ""


class Quota(msgspec.Struct):
    """None as a name is the default of a type, None as a limit removes it."""

    entity: dict[str, str | None]
    limits: dict[str, float | None]


async def _or_gap(answer: Awaitable[T]) -> tuple[T | None, dict[str, Any] | None]:
    """An answer, or why there is none: one refused part must not hide the others."""
    try:
        return await answer, None
    except (Refused, NotReachable) as error:
        return None, gap_of_error(error).shown()


def access_routes(sessions: Sessions) -> list[Route]:
    # Longer than other functions because it is a table: one entry per route.
    async def security(request: Request) -> Response:
        cluster = sessions.of(request).cluster
        acls, no_acls = await _or_gap(list_acls(cluster))
        users, no_users = await _or_gap(list_users(cluster))
        configs, _ = await _or_gap(authorizer_configs(cluster))
        roles, no_roles = await _or_gap(list_roles(cluster))
        found: dict[str, Any] = {
            "acls": None if acls is None else [acl_row(acl) for acl in acls],
            "acls_gap": no_acls,
            "users": users,
            "users_gap": no_users,
            "roles": roles,
            "roles_gap": no_roles,
            "authorizer": configs,
            "mechanisms": list(reversed(scrams())),
            **choices(),
        }
        return as_json(found)

    async def acl(request: Request) -> Response:
        cluster, wanted = sessions.of(request).cluster, acl_from(await body_of(request, dict[str, str]))
        if request.method == "POST":
            await add_acls(cluster, [wanted])
        else:
            await remove_acls(cluster, [AclFilter(*wanted)])
        return as_json({})

    async def user(request: Request) -> Response:
        cluster, wanted = sessions.of(request).cluster, await body_of(request, User)
        if wanted.mechanism not in scrams():
            raise BadInput(f"{wanted.mechanism!r} is not one of {', '.join(scrams())}")
        if request.method == "DELETE":
            await remove_user(cluster, wanted.user, [wanted.mechanism])
        elif not wanted.user or not wanted.password:
            raise BadInput("a user needs a name and a password")
        else:
            await set_password(cluster, wanted.user, wanted.mechanism, wanted.password, _ITERATIONS)
        return as_json({})

    async def revoke(request: Request) -> Response:
        session, wanted = sessions.of(request), await body_of(request, Revoked)
        name = wanted.user.removeprefix("User:")
        if not name:
            raise BadInput("name the user to revoke")
        if name == session.user:
            raise BadInput(f"you are logged in as {name}: another administrator has to revoke it")
        return as_json({"removed": await revoke_user(session.cluster, name, time.time_ns() // 1_000_000)})

    async def member(request: Request) -> Response:
        cluster, wanted = sessions.of(request).cluster, await body_of(request, Member)
        if not wanted.role or not wanted.member:
            raise BadInput("a role needs a name and a member, such as User:alice")
        is_member = request.method == "POST"
        await alter_members(cluster, wanted.role, [principal_of(wanted.member)], is_member)
        return as_json({})

    async def why(request: Request) -> Response:
        cluster, requested = sessions.of(request).cluster, await body_of(request, Question)
        acls, roles = await list_acls(cluster), await list_roles(cluster)
        configs = await authorizer_configs(cluster)
        answer = explain(
            acls,
            roles or {},
            configs,
            principal=requested.principal,
            host=requested.host,
            operation=requested.operation,
            resource=requested.resource,
            name=requested.name,
        )
        return as_json({**answer, "enforced": bool(configs.get("authorizer.class.name"))})

    return [
        Route("/api/security", security),
        Route("/api/acls", acl, methods=["POST", "DELETE"]),
        Route("/api/users", user, methods=["POST", "DELETE"]),
        Route("/api/users/revoke", revoke, methods=["POST"]),
        Route("/api/roles", member, methods=["POST", "DELETE"]),
        Route("/api/why", why, methods=["POST"]),
    ]


def quota_routes(sessions: Sessions) -> list[Route]:
    async def quotas(request: Request) -> Response:
        found = await list_quotas(sessions.of(request).cluster)
        return as_json({"quotas": found, "keys": _QUOTA_KEYS, "entities": _ENTITIES})

    async def change(request: Request) -> Response:
        cluster, wanted = sessions.of(request).cluster, await body_of(request, Quota)
        if not wanted.entity or not wanted.limits:
            raise BadInput("a quota needs an entity and a limit")
        await alter_quotas(cluster, wanted.entity, wanted.limits)
        return as_json({})

    return [Route("/api/quotas", quotas), Route("/api/quotas", change, methods=["POST"])]


def transaction_routes(sessions: Sessions) -> list[Route]:
    async def transactions(request: Request) -> Response:
        return as_json(await list_transactions(sessions.of(request).cluster))

    async def transaction(request: Request) -> Response:
        name = request.query_params.get("id")
        if not name:
            raise BadInput("name the transactional id with ?id=")
        return as_json(await describe_transaction(sessions.of(request).cluster, name))

    async def open_ones(request: Request) -> Response:
        return as_json(await list_open(sessions.of(request).cluster))

    async def abort(request: Request) -> Response:
        cluster, wanted = sessions.of(request).cluster, await body_of(request, Hanging)
        await abort_hanging(cluster, wanted.topic, wanted.partition, offset_of(wanted.start_offset))
        return as_json({})

    async def rights(request: Request) -> Response:
        return as_json({"cluster": await cluster_rights(sessions.of(request).cluster)})

    async def topic_rights(request: Request) -> Response:
        return as_json({"topics": await any_topic_rights(sessions.of(request).cluster)})

    return [
        Route("/api/transactions", transactions),
        Route("/api/transactions/open", open_ones),
        Route("/api/transactions/abort", abort, methods=["POST"]),
        Route("/api/transaction", transaction),
        Route("/api/rights", rights),
        Route("/api/rights/topics", topic_rights),
    ]
