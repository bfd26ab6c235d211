"""The authorisation part of the negative matrix: each API, each missing operation, each deny."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.broker.authorization.forms import Environment
from penstock.broker.authorization.table import RULES, authorized
from penstock.broker.base.access import Access
from penstock.broker.base.audit import Audit
from penstock.broker.base.context import Context
from penstock.metadata.image import ClusterImage
from penstock.net.listener import Listener
from penstock.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from penstock.security.authorizer import Authorizer
from penstock.security.principal import Principal, Session
from penstock.wire.apis import APIS
from penstock.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchResponseGroup
from penstock.wire.metadata_records import TopicRecord
from penstock.wire.schema import Struct
from penstock.wire.slicing import exhausted
from tests.broker.authorization.requests import CASES, TOPIC_ID, Case, Needed

_CODES = (29, 30, 31, 53)
#: keys of APIs that need nothing, of those that only filter their responses, and of those that query the
#: handler for partitions (`test_enforcement` and the tests of Produce and Fetch have them)
_ELSEWHERE = {0, 16, 17, 18, 36, 38, 39, 40, 41, 66, 71, 72}


class Stage:
    """A cluster with one topic, a principal, and a handler that answers with an empty response."""

    def __init__(self) -> None:
        self.image = ClusterImage()
        self.image.apply(TopicRecord(name="t", topic_id=TOPIC_ID), 0)
        self.internal = Listener("INTERNAL", "127.0.0.1", 1)
        authorizer = Authorizer(lambda: self.image.acls, (), False)
        access = Access(authorizer, self.image, Audit(0, lambda: 0.0))
        self.environment = Environment(access, self.image, lambda: False, self.internal, lambda *_: None)
        self._ids = count()

    def acl(self, needed: Needed, permission: Permission = Permission.ALLOW) -> None:
        operation, kind, name = needed
        acl = Acl(kind, name, PatternType.LITERAL, "User:alice", "*", operation, permission)
        self.image.acls.add(next(self._ids).to_bytes(16, "big"), acl)

    def serve(self, case: Case) -> tuple[Any, list[Any]]:
        """The response, and the requests that reached the handler."""
        api = APIS[case.key]
        reached: list[Any] = []

        def handler(context: Context, request: Any) -> Any:
            reached.append(request)
            response = api.response()
            if case.key == OFFSET_FETCH.key:
                response.groups = [OffsetFetchResponseGroup(group_id=g.group_id) for g in request.groups]
            return response

        session = Session(Principal("User", "alice"), host="10.0.0.1")
        context = SimpleNamespace(
            session=session,
            principal=session.principal,
            host=session.host,
            version=case.version,
            client_id="c",
            listener=self.internal if case.internal else None,
            stats=SimpleNamespace(name=api.name),
            denials=None,
            in_turns=exhausted,
            until_done=_done,
        )
        response = authorized(self.environment, api, handler)(cast(Context, context), case.request())
        return asyncio.run(response) if inspect.iscoroutine(response) else response, reached


async def _done(steps: Generator[object, None, Any]) -> Any:
    return exhausted(steps)


def codes(message: Any) -> set[int]:
    """The authorisation errors anywhere in a response."""
    if isinstance(message, list):
        return set().union(*map(codes, message)) if message else set()
    if isinstance(message, Struct):
        values = {field.name: getattr(message, field.name) for field in type(message).fields}
        found = {v for name, v in values.items() if name.endswith("error_code") and v in _CODES}
        return found.union(*(codes(value) for value in values.values()))
    return set()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_with_all_operations_a_request_is_allowed(case: Case) -> None:
    stage = Stage()
    for needed in case.needs:
        stage.acl(needed)
    response, reached = stage.serve(case)
    assert codes(response) == set()
    assert reached == [case.request()]


_MISSING = [(case, needed) for case in CASES for needed in case.needs]


@pytest.mark.parametrize(("case", "missing"), _MISSING, ids=lambda value: str(value))
def test_without_one_operation_a_request_is_denied(case: Case, missing: Needed) -> None:
    stage = Stage()
    for needed in case.needs:
        if needed != missing:
            stage.acl(needed)
    response, _ = stage.serve(case)
    assert case.needs[missing] in codes(response)


@pytest.mark.parametrize(("case", "denied"), _MISSING, ids=lambda value: str(value))
def test_a_deny_wins(case: Case, denied: Needed) -> None:
    stage = Stage()
    for needed in case.needs:
        stage.acl(needed)
    stage.acl(denied, Permission.DENY)
    response, _ = stage.serve(case)
    assert case.needs[denied] in codes(response)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_other_operations_and_other_names_do_not_help(case: Case) -> None:
    stage = Stage()
    for operation, kind, name in case.needs:
        if kind != ResourceType.CLUSTER:
            stage.acl((operation, kind, name + "-other"))
        stage.acl((Operation.CREATE_TOKENS, kind, name))
    response, _ = stage.serve(case)
    assert codes(response)


def test_every_api_has_a_rule_and_a_case() -> None:
    assert set(APIS) <= set(RULES)
    assert {case.key for case in CASES} | _ELSEWHERE >= set(APIS)


@pytest.mark.parametrize(
    ("key", "version", "alternative"),
    [
        (19, 7, (Operation.CREATE, ResourceType.CLUSTER, "kafka-cluster")),
        (20, 6, (Operation.DELETE, ResourceType.CLUSTER, "kafka-cluster")),
        (22, 4, (Operation.WRITE, ResourceType.TOPIC, "any")),
        (23, 4, (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")),
        (27, 1, (Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster")),
    ],
)
def test_alternatives(key: int, version: int, alternative: Needed) -> None:
    case = [c for c in CASES if (c.key, c.version) == (key, version)][-1]
    stage = Stage()
    stage.acl(alternative)
    response, reached = stage.serve(case)
    assert codes(response) == set()
    assert reached
