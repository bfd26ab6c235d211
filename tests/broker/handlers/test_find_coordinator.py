"""FindCoordinator over the raw protocol, in every version."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from penstock.broker.coordinators.runtime import CoordinatorRuntime
from penstock.broker.handlers.find_coordinator import CoordinatorLookup
from penstock.model.errors import ErrorCode
from penstock.testing import broker
from penstock.wire.apis.find_coordinator import FIND_COORDINATOR, FindCoordinatorRequest
from penstock.wire.apis.offset_fetch import (
    OFFSET_FETCH,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from tests.broker.conftest import penstock_only
from tests.broker.events import Events
from tests.broker.handlers.group_requests import BATCHED
from tests.broker.nodes import Cluster, run
from tests.broker.raw import RawClient
from tests.broker.requests import (
    every_version,
)


@pytest.mark.parametrize("version", every_version(FIND_COORDINATOR))
def test_the_coordinator_of_a_group(client: RawClient, version: int) -> None:
    request = FindCoordinatorRequest(key="g", coordinator_keys=["g", "h"])

    response = client.call(FIND_COORDINATOR, version, request)

    found = response.coordinators if version >= 4 else [response]
    assert len(found) == (2 if version >= 4 else 1)
    for each in found:
        assert (each.error_code, f"{each.host}:{each.port}") == (ErrorCode.NONE, client.address)


@penstock_only
@penstock_only
def test_without_enough_brokers_for_the_offsets_topic_there_is_no_coordinator(events: Events) -> None:
    """The next request after the missing brokers have started finds it."""

    async def find(nodes: Cluster) -> int:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])
        (found,) = (await nodes.call(1, FIND_COORDINATOR, request)).coordinators
        return found.error_code

    async def main() -> None:
        nodes = Cluster([1], [2, 3], {"offsets.topic.replication.factor": "3"})
        try:
            await nodes.start(1)
            assert await find(nodes) == ErrorCode.COORDINATOR_NOT_AVAILABLE
            ((level, fields),) = events.of("no_coordinator")
            assert level == "warning" and "3" in fields["reason"]
            await nodes.start(2, 3)
            assert await find(nodes) == ErrorCode.NONE
        finally:
            await nodes.close()

    run(main())


def test_share_groups_have_no_coordinator(client: RawClient) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["x"])
    (found,) = client.call(FIND_COORDINATOR, 6, request).coordinators
    assert (found.error_code, found.node_id) == (ErrorCode.INVALID_REQUEST, -1)


@penstock_only
def test_transactions_have_a_coordinator(client: RawClient) -> None:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"])
    for found in client.call(FIND_COORDINATOR, 6, request).coordinators:
        assert (found.error_code, f"{found.host}:{found.port}") == (ErrorCode.NONE, client.address)


@penstock_only
def test_a_new_broker_serves_all_requests_that_arrive_at_once(tmp_path: Path) -> None:
    """The first request creates `__consumer_offsets`. The others arrive before its partitions are open."""

    def request(bootstrap: str, group: str) -> int:
        with RawClient(bootstrap) as client:
            found = client.call(FIND_COORDINATOR, 4, FindCoordinatorRequest(coordinator_keys=[group]))
            fetched = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
            answer = client.call(OFFSET_FETCH, BATCHED, fetched).groups[0].error_code
            return found.coordinators[0].error_code or answer

    with broker(data=tmp_path) as running, ThreadPoolExecutor(16) as clients:
        codes = clients.map(partial(request, running.bootstrap), map(str, range(64)))
        assert set(codes) == {ErrorCode.NONE}


class Topic:
    """An internal topic of two partitions, which other brokers may have created meanwhile."""

    name = "__consumer_offsets"

    def __init__(self, *, exists: bool) -> None:
        self.exists = exists

    def partition_for(self, key: str) -> int:
        return int(key) if self.exists else -1

    def leader_of(self, index: int) -> int:
        return index

    async def ensure(self) -> None:
        self.exists = True


class Spawned:
    """The context of a request of version 6, on broker 0 of two."""

    version = 6

    class listener:
        name = "PLAINTEXT"

    def spawn(self, coroutine: Any) -> Any:
        return asyncio.ensure_future(coroutine)


def lookup(topic: Topic) -> tuple[CoordinatorLookup, CoordinatorRuntime[Any]]:
    runtime: CoordinatorRuntime[Any] = CoordinatorRuntime(
        cast(Any, topic), cast(Any, None), 0, cast(Any, None)
    )

    class Node:
        fenced = False
        endpoints = {"PLAINTEXT": ("host", 9092)}  # noqa: RUF012

    class Image:
        brokers = {0: Node(), 1: Node()}  # noqa: RUF012

    return CoordinatorLookup(runtime, runtime, runtime, lambda: True, cast(Any, Image())), runtime


async def codes(found: Any) -> list[int]:
    response = await found if asyncio.isfuture(found) else found
    return [each.error_code for each in response.coordinators]


def test_a_request_waits_until_the_partition_of_this_broker_is_open() -> None:
    """The image has the partition before its log is open: the shard would answer NOT_COORDINATOR."""
    request = FindCoordinatorRequest(coordinator_keys=["0"])

    class Host:
        def load(self) -> None: ...

    async def play() -> None:
        found, runtime = lookup(Topic(exists=True))
        waiting = found.find_coordinator(cast(Any, Spawned()), request)
        await asyncio.wait([waiting], timeout=0.01)
        assert not waiting.done()
        runtime._hosts[0] = cast(Any, Host())
        assert runtime._next_host is not None
        runtime._next_host.set_result(None)
        assert await codes(waiting) == [ErrorCode.NONE]

    asyncio.run(play())
