"""A broker whose wall clock is wrong deletes nothing by time, and others lead what it led."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from tests.broker import requests
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica

ALL = (1, 2, 3)
DAY_MS = 86_400_000
#: retention looks often, and heartbeats are frequent
BUSY = {
    "log.retention.check.interval.ms": "5",
    "broker.heartbeat.interval.ms": "20",
    "offsets.retention.check.interval.ms": "5",
}


class WrongClock:
    """The system's clock, set by the test."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms

    def monotonic(self) -> float:
        return time.monotonic()


@asynccontextmanager
async def three(**config: str) -> AsyncIterator[tuple[Cluster, dict[int, WrongClock]]]:
    nodes = Cluster(ALL, config={**BUSY, **{name.replace("_", "."): v for name, v in config.items()}})
    clocks = {node: WrongClock() for node in ALL}
    nodes.clocks.update(clocks)
    try:
        await nodes.start()
        yield nodes, clocks
    finally:
        await nodes.close()


def suspended(nodes: Cluster, node: int) -> bool:
    return nodes[node].node.clock_watch.suspended is not None


async def fill(nodes: Cluster, leader: int, name: str) -> None:
    """Records of now, to a topic that keeps them for a day."""
    await make_topic(
        nodes, leader, *(n for n in ALL if n != leader), name=name, configs={"retention.ms": str(DAY_MS)}
    )
    for i in range(3):
        assert (await produce(nodes, leader, b"%d" % i, name=name)).error_code == ErrorCode.NONE
    await eventually(lambda: all(replica(nodes[node], name).log.high_watermark == 3 for node in ALL))


async def rounds(nodes: Cluster) -> None:
    """Return when retention has been applied everywhere, several times."""
    for broker in nodes.brokers.values():
        for _ in range(3):
            await broker.maintenance.retain()


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("controls", [True, False])
def test_two_days_ahead_with_a_retention_of_one_deletes_nothing(leads: bool, controls: bool) -> None:
    async def main() -> None:
        async with three() as (nodes, clocks):
            controller = (await nodes.settled()).node_id
            other = next(node for node in ALL if node != controller)
            wrong = controller if controls else other
            await fill(nodes, wrong if leads else next(n for n in ALL if n != wrong), "kept")

            clocks[wrong].ahead_ms = 2 * DAY_MS
            await eventually(lambda: suspended(nodes, wrong))
            await eventually(lambda: described(nodes[controller], "kept").leader != wrong)
            await rounds(nodes)

            assert [replica(nodes[node], "kept").log.log_start_offset for node in ALL] == [0, 0, 0]
            assert len(described(nodes[controller], "kept").isr) == 3
            await eventually(lambda: [node for node in ALL if suspended(nodes, node)] == [wrong])

            clocks[wrong].ahead_ms = 0
            await eventually(lambda: not suspended(nodes, wrong))

    run(main())


def test_without_the_limit_they_would_go() -> None:
    async def main() -> None:
        async with three(penstock_clock_skew_max_ms=str(10 * DAY_MS)) as (nodes, clocks):
            await fill(nodes, 2, "kept")
            clocks[2].ahead_ms = 2 * DAY_MS

            await eventually(lambda: replica(nodes[1], "kept").log.log_start_offset == 3)

    run(main())


def test_two_days_behind_writes_go_on_elsewhere() -> None:
    """Good timestamps are in the future there, and are refused (`message.timestamp.after.max.ms`)."""

    async def main() -> None:
        async with three() as (nodes, clocks):
            await fill(nodes, 2, "kept")
            clocks[2].ahead_ms = -2 * DAY_MS
            await eventually(lambda: replica(nodes[1], "kept").leading or replica(nodes[3], "kept").leading)

            leader = 1 if replica(nodes[1], "kept").leading else 3
            assert (await produce(nodes, leader, b"more", name="kept")).error_code == ErrorCode.NONE

    run(main())


@pytest.mark.parametrize("days", [-2, 2])
def test_a_leader_that_cannot_hand_over_refuses_no_timestamps(
    days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with three() as (nodes, clocks):
            keys = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
            limits = dict.fromkeys(keys, "60000")
            await make_topic(nodes, 2, name="before", configs=limits, min_isr=1)
            clocks[2].ahead_ms = days * DAY_MS
            await eventually(lambda: suspended(nodes, 2))
            await make_topic(nodes, 2, name="meanwhile", configs=limits, min_isr=1)
            for name in ("before", "meanwhile"):
                assert (await produce(nodes, 2, b"good", name=name)).error_code == ErrorCode.NONE

            clocks[2].ahead_ms = 0
            await eventually(lambda: not suspended(nodes, 2))
            monkeypatch.setattr(requests, "now_ms", lambda: clocks[2].now_ms() + days * DAY_MS)
            answer = await produce(nodes, 2, b"bad", name="before")
            assert answer.error_code == ErrorCode.INVALID_TIMESTAMP

    run(main())


def test_a_broker_that_starts_with_a_wrong_clock_deletes_nothing() -> None:
    async def main() -> None:
        async with three() as (nodes, clocks):
            await fill(nodes, 2, "kept")
            await nodes.stop(2)
            clocks[2].ahead_ms = 2 * DAY_MS
            await nodes.start(2)
            await nodes[2].maintenance.retain()

            await eventually(lambda: suspended(nodes, 2))
            await rounds(nodes)
            assert replica(nodes[2], "kept").log.log_start_offset == 0
            await eventually(lambda: len(described(nodes[2], "kept").isr) == 3)
            assert described(nodes[2], "kept").leader != 2

    run(main())


def test_of_two_clocks_neither_is_trusted_until_a_third_decides() -> None:
    async def main() -> None:
        nodes = Cluster(ALL, config=BUSY)
        clock = nodes.clocks[2] = WrongClock()
        clock.ahead_ms = 2 * DAY_MS
        try:
            await nodes.start(1, 2)
            await eventually(lambda: suspended(nodes, 1) and suspended(nodes, 2))
            await nodes.start(3)
            await eventually(lambda: not suspended(nodes, 1) and not suspended(nodes, 3))
            assert suspended(nodes, 2)
        finally:
            await nodes.close()

    run(main())


def test_whoever_describes_the_directories_learns_why_nothing_is_deleted() -> None:
    async def main() -> None:
        async with three() as (nodes, clocks):
            clocks[2].ahead_ms = 2 * DAY_MS
            await eventually(lambda: suspended(nodes, 2))

            request = DescribeLogDirsRequest(topics=None)
            answers = {node: await nodes.call(node, DESCRIBE_LOG_DIRS, request) for node in ALL}

            assert "ahead" in answers[2].deletion_suspended
            assert answers[3].deletion_suspended == ""

    run(main())


def test_the_last_leader_of_the_quorum_trusts_no_clock_when_it_starts() -> None:
    """Its disk says that it leads, and its image is still empty: it is not alone all the same."""

    async def main() -> None:
        async with three() as (nodes, _):
            last = (await nodes.settled()).node_id
            await nodes.kill(last)
            config = BrokerConfig(nodes.settings[last])
            world = system_world(config)._replace(files=nodes.disks[last], clock=nodes.clocks[last])
            broker = nodes.brokers[last] = await Broker.open(config, world)
            assert broker.node.leader_id == last
            assert broker.node.clock_watch.now_ms() is None

    run(main())
