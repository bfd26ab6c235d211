"""A broker whose wall clock is wrong deletes nothing by time, and others lead what it led."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.node.clock_watch import ClockWatch
from penstock.metadata.image import BROKER, TOPIC
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.timekeeping.trust import Cause
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from tests.broker import requests
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica
from tests.broker.topic_configs import alter

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
    return nodes[node].stages.cluster.node.clock_watch.suspended is not None


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
            await broker.stages.replication.maintenance.retain()


@pytest.mark.parametrize("leads", [True, False])
@pytest.mark.parametrize("controls", [True, False])
def test_two_days_ahead_with_a_retention_of_one_deletes_nothing(leads: bool, controls: bool) -> None:
    async def main() -> None:
        async with three() as (nodes, clocks):
            controller = (await nodes.settled()).stages.config.node_id
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


def test_without_the_limit_overdue_segments_are_deleted() -> None:
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
            await nodes[2].stages.replication.maintenance.retain()

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


def test_describe_log_dirs_explains_suspended_deletion() -> None:
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
            last = (await nodes.settled()).stages.config.node_id
            await nodes.kill(last)
            config = BrokerConfig(nodes.settings[last])
            world = system_world(config)._replace(files=nodes.disks[last], clock=nodes.clocks[last])
            broker = nodes.brokers[last] = await Broker.open(config, world)
            assert broker.stages.cluster.node.leader_id == last
            assert broker.stages.cluster.node.clock_watch.now_ms() is None

    run(main())


def kept(nodes: Cluster) -> list[int]:
    return [replica(nodes[node], "kept").log.log_start_offset for node in ALL]


@pytest.mark.parametrize("right", ALL)
def test_two_of_three_that_start_two_days_ahead_delete_nothing(right: int) -> None:
    """A majority that agrees, and contradicts the time before the stop."""

    async def main() -> None:
        async with three() as (nodes, clocks):
            await fill(nodes, right, "kept")
            wrong = [node for node in ALL if node != right]
            for node in wrong:
                await nodes.stop(node)
                clocks[node].ahead_ms = 2 * DAY_MS
            await nodes.start(*wrong)
            await eventually(lambda: all(suspended(nodes, node) for node in wrong))
            await eventually(lambda: len(described(nodes[right], "kept").isr) == 3)
            for _ in range(3):
                await rounds(nodes)
            assert kept(nodes) == [0, 0, 0]

            for node in wrong:
                clocks[node].ahead_ms = 0
            await eventually(lambda: not any(suspended(nodes, node) for node in ALL))

    run(main())


@pytest.mark.parametrize("count", [1, 2, 3])
def test_brokers_that_step_two_days_ahead_for_a_while_delete_nothing(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host resumes its virtual machines with a wrong time, and corrects it."""
    comparisons = Counter[ClockWatch]()
    compare = ClockWatch.compared

    def compared(watch: ClockWatch, *args: Any) -> None:
        compare(watch, *args)
        comparisons[watch] += 1

    monkeypatch.setattr(ClockWatch, "compared", compared)

    async def main() -> None:
        async with three() as (nodes, clocks):
            await nodes.settled()
            await fill(nodes, 1, "kept")
            await eventually(lambda: not any(suspended(nodes, node) for node in ALL))
            for node in ALL[:count]:
                clocks[node].ahead_ms = 2 * DAY_MS
            comparisons.clear()
            watches = [nodes[node].stages.cluster.node.clock_watch for node in ALL]
            await eventually(lambda: all(comparisons[watch] > 5 for watch in watches))
            await rounds(nodes)
            assert all(suspended(nodes, node) for node in ALL[:count])
            assert kept(nodes) == [0, 0, 0]

            for node in ALL:
                clocks[node].ahead_ms = 0
            await eventually(lambda: not any(suspended(nodes, node) for node in ALL))
            await rounds(nodes)
            assert kept(nodes) == [0, 0, 0]

    run(main())


def test_an_operator_confirms_that_the_time_is_right() -> None:
    """All clocks were wrong for long, and are set right together."""

    async def main() -> None:
        async with three() as (nodes, clocks):
            await nodes.settled()
            await fill(nodes, 1, "kept")
            for node in ALL:
                clocks[node].ahead_ms = 2 * DAY_MS
            await rounds(nodes)
            await eventually(lambda: all(suspended(nodes, node) for node in ALL))
            assert kept(nodes) == [0, 0, 0]

            key, time_ms = "penstock.clock.confirmed.ms", str(clocks[1].now_ms())
            assert await alter(nodes, 1, BROKER, "", key, time_ms) == ErrorCode.NONE
            await eventually(lambda: kept(nodes) == [3, 3, 3])

    run(main())


def test_a_cluster_that_was_off_for_long_deletes_again_after_the_grace_period() -> None:
    async def main() -> None:
        async with three(penstock_clock_grace_ms="1500") as (nodes, clocks):
            await fill(nodes, 1, "kept")
            for node in ALL:
                await nodes.stop(node)
                clocks[node].ahead_ms = 30 * DAY_MS
            await nodes.start()
            await rounds(nodes)
            assert kept(nodes) == [0, 0, 0]
            await eventually(lambda: kept(nodes) == [3, 3, 3])

    run(main())


def test_a_broker_without_its_clock_file_is_trusted_once_other_brokers_confirm() -> None:
    """The time before its stop is unknown. The others have watched the time."""

    async def main() -> None:
        async with three() as (nodes, _):
            await fill(nodes, 1, "kept")
            file = f"{nodes[3].stages.storage.partitions.directories[0].path}/clock-checkpoint"
            await nodes.stop(3)
            nodes.disks[3].remove(file)
            await nodes.start(3)
            await eventually(lambda: not suspended(nodes, 3))

    run(main())


def test_records_that_were_too_old_before_the_start_wait_for_the_grace_period(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are all records: wrong timestamps and a wrong clock look the same."""

    async def main() -> None:
        rare = {"log.retention.check.interval.ms": "3600000"}
        nodes = Cluster((1,), config=rare)
        clock = nodes.clocks[1] = WrongClock()
        try:
            await nodes.start()
            monkeypatch.setattr(requests, "now_ms", lambda: clock.now_ms() - 2 * DAY_MS)
            await make_topic(nodes, 1, name="old", min_isr=1, configs={"retention.ms": str(DAY_MS)})
            await produce(nodes, 1, b"old", name="old")
            await nodes.stop(1)
            await nodes.start(1)
            await nodes[1].stages.replication.maintenance.retain()
            log = replica(nodes[1], "old").log
            doubt = nodes[1].stages.cluster.node.clock_watch.doubt
            assert (log.log_start_offset, suspended(nodes, 1)) == (0, False)
            assert doubt is not None
            assert doubt.cause is Cause.ROUND

            # A retention that a user changes is applied at once.
            assert await alter(nodes, 1, TOPIC, "old", "retention.ms", "1000") == ErrorCode.NONE
            await eventually(lambda: log.config.retention_ms == 1000)
            await nodes[1].stages.replication.maintenance.retain()
            assert log.log_start_offset == 1
            assert nodes[1].stages.cluster.node.clock_watch.doubt is None
        finally:
            await nodes.close()

    run(main())
