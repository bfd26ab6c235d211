"""Requests with thousands of names that a client may not use, or that do not exist: time on the event loop.

Each of them held the loop for seconds: denials were written one by one, and some checks were quadratic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from penstock.model.errors import ErrorCode
from penstock.testing import BrokerThread, broker
from penstock.wire.api import Api
from penstock.wire.apis.describe_groups import DESCRIBE_GROUPS, DescribeGroupsRequest
from penstock.wire.apis.describe_user_scram_credentials import (
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    DescribeUserScramCredentialsRequest,
    UserName,
)
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from penstock.wire.apis.offset_fetch import OFFSET_FETCH, OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.schema import Struct
from tests.broker.authorization.acls import CONFIG, Admin
from tests.broker.raw import RawClient
from tests.broker.stalls import assert_brief, assert_linear, cpu

_MANY = 20_000


@pytest.fixture(scope="module")
def running() -> Iterator[BrokerThread]:
    with broker(config={**CONFIG, "auto.create.topics.enable": "false"}) as found:
        yield found


@pytest.fixture(scope="module")
def admin(running: BrokerThread) -> Iterator[Admin]:
    with Admin(running.bootstrap) as connected:
        yield connected


@pytest.fixture
def client(running: BrokerThread, admin: Admin) -> Iterator[RawClient]:
    """A client that may do nothing."""
    with RawClient(running.bootstrap, timeout_s=60) as connected:
        yield connected


def _names(number: int) -> list[str]:
    return [f"name-{i}" for i in range(number)]


def _metadata(number: int) -> Struct:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in _names(number)])


def _offset_fetch(number: int) -> Struct:
    return OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=name, topics=[]) for name in _names(number)]
    )


def _find_coordinator(number: int) -> Struct:
    return FindCoordinatorRequest(key_type=0, coordinator_keys=_names(number))


def _describe_groups(number: int) -> Struct:
    return DescribeGroupsRequest(groups=_names(number))


def _credentials(number: int) -> DescribeUserScramCredentialsRequest:
    return DescribeUserScramCredentialsRequest(users=[UserName(name=name) for name in _names(number)])


#: the API, its version, its request, and the list of its response
REQUESTS: dict[str, tuple[Api[Any, Any], int, Callable[[int], Struct], str]] = {
    "Metadata": (METADATA, 12, _metadata, "topics"),
    "OffsetFetch": (OFFSET_FETCH, 9, _offset_fetch, "groups"),
    "FindCoordinator": (FIND_COORDINATOR, 4, _find_coordinator, "coordinators"),
    "DescribeGroups": (DESCRIBE_GROUPS, 5, _describe_groups, "groups"),
}
_DENIED = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED)


@pytest.mark.parametrize("name", REQUESTS)
def test_denied_names_do_not_hold_the_loop(running: BrokerThread, client: RawClient, name: str) -> None:
    api, version, request, answers = REQUESTS[name]
    assert_brief(running, lambda: client.call(api, version, request(_MANY)))
    found = getattr(client.call(api, version, request(_MANY)), answers)
    assert len(found) == _MANY
    assert {answer.error_code for answer in found} <= set(_DENIED)


@pytest.mark.parametrize("name", REQUESTS)
def test_the_cost_of_denied_names_is_linear(running: BrokerThread, client: RawClient, name: str) -> None:
    api, version, request, _ = REQUESTS[name]
    assert_linear(
        lambda number: cpu(running, partial(client.call, api, version, request(number))),
        _MANY,
    )


def test_names_of_users_do_not_hold_the_loop(running: BrokerThread, admin: Admin) -> None:
    request = _credentials(_MANY)
    assert_brief(running, lambda: admin.call(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request))
    results = admin.call(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request).results
    assert [result.user for result in results] == _names(_MANY)


def test_users_that_are_named_twice_are_refused(admin: Admin) -> None:
    """The request is large, and its names count together."""
    users = [UserName(name=name) for name in _names(500) * 2]
    request = DescribeUserScramCredentialsRequest(users=users)
    results = admin.call(DESCRIBE_USER_SCRAM_CREDENTIALS, 0, request).results
    assert {result.error_code for result in results} == {ErrorCode.DUPLICATE_RESOURCE}
    assert len(results) == 500
