"""Routes of security, quotas and transactions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock.console.kafka.access import (
    MECHANISMS,
    add_acl,
    authorizer_configs,
    change_member,
    list_acls,
    list_roles,
    list_users,
    remove_acl,
    remove_user,
    set_password,
)
from penstock.console.kafka.cluster import Refused
from penstock.console.kafka.quotas import alter_quotas, list_quotas
from penstock.console.kafka.transactions import describe_transaction, list_transactions
from penstock.console.views.access import acl_from, acl_row, choices, explain, principal_of
from penstock.console.web.answers import BadInput, as_json, body_of
from penstock.console.web.sessions import Sessions

__all__ = ["access_routes", "quota_routes", "transaction_routes"]

T = TypeVar("T")
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
    mechanism: str = "SCRAM-SHA-512"
    password: str = ""


class Member(msgspec.Struct):
    role: str
    member: str


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


async def _or_reason(answer: Awaitable[T]) -> tuple[T | None, str | None]:
    """An answer, or why brokers refuse it to this user: one refused part must not hide the others."""
    try:
        return await answer, None
    except Refused as error:
        return None, str(error)


def access_routes(sessions: Sessions) -> list[Route]:
    # Longer than other functions because it is a table: one entry per route.
    async def security(request: Request) -> Response:
        cluster = sessions.of(request).cluster
        acls, no_acls = await _or_reason(list_acls(cluster))
        users, no_users = await _or_reason(list_users(cluster))
        configs, _ = await _or_reason(authorizer_configs(cluster))
        found: dict[str, Any] = {
            "acls": None if acls is None else [acl_row(acl) for acl in acls],
            "acls_refused": no_acls,
            "users": users,
            "users_refused": no_users,
            "roles": await list_roles(cluster),
            "authorizer": configs,
            "mechanisms": list(MECHANISMS),
            **choices(),
        }
        return as_json(found)

    async def acl(request: Request) -> Response:
        cluster, wanted = sessions.of(request).cluster, acl_from(await body_of(request, dict[str, str]))
        await (add_acl if request.method == "POST" else remove_acl)(cluster, wanted)
        return as_json({})

    async def user(request: Request) -> Response:
        cluster, wanted = sessions.of(request).cluster, await body_of(request, User)
        if wanted.mechanism not in MECHANISMS:
            raise BadInput(f"{wanted.mechanism!r} is not one of {', '.join(MECHANISMS)}")
        if request.method == "DELETE":
            await remove_user(cluster, wanted.user, wanted.mechanism)
        elif not wanted.user or not wanted.password:
            raise BadInput("a user needs a name and a password")
        else:
            await set_password(cluster, wanted.user, wanted.mechanism, wanted.password)
        return as_json({})

    async def member(request: Request) -> Response:
        cluster, wanted = sessions.of(request).cluster, await body_of(request, Member)
        if not wanted.role or not wanted.member:
            raise BadInput("a role needs a name and a member, such as User:alice")
        await change_member(cluster, wanted.role, principal_of(wanted.member), request.method == "POST")
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

    return [Route("/api/transactions", transactions), Route("/api/transaction", transaction)]
