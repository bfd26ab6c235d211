"""Nodes that wait for a quorum: for as long as it takes, with a log event that says what is missing."""

from __future__ import annotations

import asyncio
from copy import deepcopy

import pytest

from penstock.broker.app.lifecycle import Lifecycle
from penstock.broker.node import quorum_wait
from penstock.model.errors import ApiError, ErrorCode
from penstock.raft.state import Recovery
from penstock.wire.apis.broker_registration import BrokerRegistrationResponse
from tests.broker.events import Events
from tests.broker.metadata_damage import SEGMENT, disk
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.topics import create

#: Kafka's brokers end after this time without a controller
_SHORT = {"initial.broker.registration.timeout.ms": "200"}


def waits(events: Events) -> list[dict[str, object]]:
    return [fields for _, fields in events.of("waiting_for_majority")]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Lifecycle, "_patience_s", 0.1)
    monkeypatch.setattr(quorum_wait, "INTERVAL_S", 0.2)


def test_a_voter_waits_for_the_others_however_long_it_takes(events: Events) -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3], config=_SHORT)
        try:
            first = asyncio.create_task(nodes.start(1))
            await eventually(lambda: len(waits(events)) > 4)
            assert not first.done()
            assert waits(events)[-1] == {
                "voters": [1, 2, 3],
                "seen": [],
                "not_seen": [2, 3],
                "reason": "epoch 0 has no leader",
            }
            await nodes.start(3)
            await first
            await nodes.settled()
            ended = len(waits(events))
            assert await create(nodes, 1, "orders") == ErrorCode.NONE
            assert len(waits(events)) == ended, "it no longer waits"
        finally:
            await nodes.close()

    run(main())


def test_a_broker_that_is_no_voter_waits_too(events: Events) -> None:
    async def main() -> None:
        nodes = Cluster([1, 2], observers=[4], config=_SHORT)
        try:
            waiting = asyncio.create_task(nodes.start(4))
            await eventually(lambda: len(waits(events)) > 4)
            assert not waiting.done()
            await nodes.start(1, 2)
            await waiting
        finally:
            await nodes.close()

    run(main())


def test_a_cut_log_and_a_stale_one_wait_for_the_voter_that_has_everything(events: Events) -> None:
    """The first of them has lost what only the last one can send, and cannot vote; the second one is behind.

    Each of them used to end after `initial.broker.registration.timeout.ms`, so that they never met.
    """

    async def main() -> None:
        async with cluster(3, config=_SHORT) as nodes:
            await nodes.settled()
            await nodes.stop(2)
            stale = deepcopy(disk(nodes, 2))
            await nodes.start(2)
            assert await create(nodes, 1, "orders", factor=3) == ErrorCode.NONE
            await nodes.stop()
            nodes.disks[2] = stale
            disk(nodes, 1).write_atomic(SEGMENT, disk(nodes, 1).read(SEGMENT)[:-9])
            waiting = asyncio.create_task(nodes.start(1, 2))
            damaged = "metadata log was damaged"
            await eventually(lambda: sum(damaged in str(fields) for fields in waits(events)) > 4)
            assert not waiting.done()
            last = next(f for f in reversed(waits(events)) if damaged in str(f))
            assert (last["seen"], last["not_seen"]) == ([2], [3])
            await nodes.start(3)
            await waiting
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.stages.cluster.image: "orders" in image.topics)
            raft = nodes[1].stages.cluster.node.quorum.state
            await eventually(lambda: raft.state.recovery == Recovery.NONE)

    run(main())


def test_a_registration_that_the_controller_refuses_ends_after_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(*_: object) -> BrokerRegistrationResponse:
        return BrokerRegistrationResponse(error_code=ErrorCode.DUPLICATE_BROKER_REGISTRATION)

    async def main() -> None:
        async with cluster(2, config=_SHORT) as nodes:
            await nodes.settled()
            lifecycle = nodes[2].stages.replication.lifecycle
            assert lifecycle is not None
            monkeypatch.setattr(nodes[2].stages.cluster.node.controller_client, "send", refuse)
            with pytest.raises(ApiError, match="DUPLICATE_BROKER_REGISTRATION"):
                await lifecycle.register()

    run(main())
