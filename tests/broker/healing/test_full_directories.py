"""Full and failed disks in a cluster: no request waits for a replica that cannot grow, and it is reported."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from unittest.mock import AsyncMock

import pytest

from penstock.broker.healing import full_directories as room
from penstock.metadata.image import PartitionImage
from penstock.model.errors import ErrorCode
from penstock.storage.memory import MemoryFiles
from penstock.testing.disk import FaultyDisk
from tests.broker.disks import Volumes
from tests.broker.nodes import Cluster, eventually, run
from tests.broker.replication import (
    TOPIC,
    described,
    fetch,
    latest,
    led_by,
    make_topic,
    produce,
    replica,
    stop_fetching,
    values_of,
)

ALL = (1, 2, 3)
LEADER = 1
#: more than a disk that has just enough room is left with
RECORD = b"x" * 100


@asynccontextmanager
async def on_disks() -> AsyncIterator[tuple[Cluster, dict[int, FaultyDisk]]]:
    """Three nodes with a disk each, and a topic that is on all of them."""
    nodes = Cluster(ALL)
    disks = {node: FaultyDisk(Random(node)) for node in ALL}
    nodes.disks.update(disks)
    try:
        await nodes.start()
        await make_topic(nodes, *ALL)
        assert (await produce(nodes, LEADER, b"before")).error_code == ErrorCode.NONE
        yield nodes, disks
    finally:
        await nodes.close()


def fill(disk: FaultyDisk) -> None:
    disk.capacity = disk.used()


def refuse(nodes: Cluster, node: int) -> None:
    """What a write that finds no room does."""
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    nodes[node].stages.storage.partitions.directories[0].health.failed(error, "cannot write")


async def all_in_sync(nodes: Cluster, number: int = len(ALL)) -> None:
    """Return when every node has heard of so many replicas in sync."""
    await eventually(lambda: all(len(described(broker).isr) == number for broker in nodes.brokers.values()))


def test_a_write_waits_but_a_moment_for_a_follower_whose_disk_is_full() -> None:
    async def main() -> None:
        async with on_disks() as (nodes, disks):
            fill(disks[3])
            async with asyncio.timeout(60):  # not replica.lag.time.max.ms, which is 120 s
                answer = await produce(nodes, LEADER, RECORD)
            assert answer.error_code == ErrorCode.NONE
            assert described(nodes[LEADER]).isr == [1, 2]
            assert not nodes[LEADER].stages.cluster.image.brokers[3].fenced
            assert nodes[3].stages.storage.metrics.full_directories == 1

            disks[3].capacity = None
            await all_in_sync(nodes)
            assert nodes[3].stages.storage.metrics.full_directories == 0
            await eventually(lambda: replica(nodes[3]).log.end_offset == 2)

    run(main())


def test_a_leader_whose_disk_is_full_hands_over_and_knows_it() -> None:
    """Clients are redirected, because metadata still has room; the controller's disk is no exception."""

    async def main() -> None:
        async with on_disks() as (nodes, disks):
            full, name = (await nodes.settled()).stages.config.node_id, "led"
            await make_topic(nodes, full, *(node for node in ALL if node != full), name=name)
            fill(disks[full])
            refused = await produce(nodes, full, RECORD, name=name)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            await eventually(lambda: not replica(nodes[full], name).leading)
            refused = await produce(nodes, full, RECORD, name=name)
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

            leader = described(nodes[full], name).leader
            await led_by(nodes, leader, name)
            assert (await produce(nodes, leader, RECORD, name=name)).error_code == ErrorCode.NONE

            disks[full].capacity = None
            await eventually(lambda: len(described(nodes[full], name).isr) == len(ALL))

    run(main())


def test_with_all_disks_full_a_replica_keeps_leading_and_serves_reads() -> None:
    async def main() -> None:
        async with on_disks() as (nodes, disks):
            for disk in disks.values():
                fill(disk)
            for node in ALL:
                refuse(nodes, node)
            await all_in_sync(nodes, 1)
            leader = described(nodes[LEADER]).leader
            assert described(nodes[LEADER]).isr == [leader]
            # A new leader has to recover the high watermark.
            await eventually(lambda: replica(nodes[leader]).log.high_watermark == 1)
            assert values_of(await fetch(nodes, leader)) == [b"before"]

            for disk in disks.values():
                disk.capacity = None
            await all_in_sync(nodes)

    run(main())


async def last_leader_with_a_tail(nodes: Cluster) -> None:
    """Fill all disks, that of 2 last, while 1 alone knows that the second of three records is committed."""
    await eventually(lambda: all(replica(nodes[node]).log.high_watermark == 1 for node in ALL))
    directories = nodes[3].stages.healing.full_directories
    look, directories.look = directories.look, AsyncMock()  # type: ignore[method-assign]
    refuse(nodes, 3)
    await stop_fetching(nodes[3])
    for value in (b"committed", b"not"):
        assert (await produce(nodes, LEADER, value, acks=1)).error_code == ErrorCode.NONE
    await eventually(lambda: replica(nodes[2]).log.end_offset == 3)
    # As if 3 had fetched it just before its disk was full.
    replica(nodes[LEADER]).log.advance_high_watermark(2)
    refuse(nodes, LEADER)
    await nodes[LEADER].stages.healing.full_directories.look()
    await led_by(nodes, 2)
    directories.look = look  # type: ignore[method-assign]
    await look()
    await all_in_sync(nodes, 1)
    refuse(nodes, 2)


@pytest.mark.parametrize("lag_ms", [30_000, 800])
def test_with_all_disks_full_the_high_watermark_is_known(lag_ms: int) -> None:
    """The new leader cannot learn it from fetches, because there are none: it queries the replicas."""

    async def main() -> None:
        async with on_disks() as (nodes, disks):
            for disk in disks.values():
                disk.capacity = disk.used() + 10_000
            nodes[2].stages.config.replica_lag_time_max_ms = lag_ms
            await last_leader_with_a_tail(nodes)
            await eventually(lambda: replica(nodes[2]).log.high_watermark == 2)
            assert await latest(nodes, 2) == 2
            assert values_of(await fetch(nodes, 2)) == [b"before", b"committed"]

    run(main())


def test_an_absent_replica_may_be_the_one_that_knows_the_high_watermark() -> None:
    async def main() -> None:
        async with on_disks() as (nodes, disks):
            for disk in disks.values():
                disk.capacity = disk.used() + 10_000
            nodes[2].stages.replication.replicas.high_watermark_recovery.check = lambda led: None  # type: ignore[method-assign]
            await last_leader_with_a_tail(nodes)
            await nodes.kill(LEADER)
            await eventually(lambda: nodes[2].stages.cluster.image.brokers[LEADER].fenced)
            leadership = replica(nodes[2]).leadership
            assert leadership is not None
            await nodes[2].stages.replication.replicas.high_watermark_recovery.recover([leadership])
            assert await latest(nodes, 2) == ErrorCode.OFFSET_NOT_AVAILABLE

    run(main())


def test_a_full_directory_and_room_again_are_each_logged_once_and_followers_stand_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[str] = []
    for level in ("info", "error"):
        monkeypatch.setattr(room.log, level, lambda event, **fields: events.append(event))

    async def main() -> None:
        async with on_disks() as (nodes, disks):
            health = nodes[3].stages.storage.partitions.directories[0].health
            fill(disks[3])
            refuse(nodes, 3)
            for _ in range(3):
                await nodes[3].stages.healing.full_directories.look()
            assert not nodes[3].stages.replication.replicas._following, (
                "at the end of an idle log it would join again"
            )
            disks[3].capacity = None
            for _ in range(3):
                await nodes[3].stages.healing.full_directories.look()
            assert health.full is None
            assert nodes[3].stages.replication.replicas._following

    run(main())
    assert events == ["directory_full", "directory_has_room"]


def test_a_follower_whose_disk_has_failed_does_not_seem_to_keep_up_at_the_end_of_an_idle_log() -> None:
    """It would be back in the ISR at once, and be elected, though its log cannot be read."""

    def isr(nodes: Cluster, index: int) -> list[int]:
        return sorted(nodes[LEADER].stages.cluster.image.topics[TOPIC].partitions[index].isr)

    async def main() -> None:
        nodes = Cluster(ALL, config={"log.dirs": "/good,/bad"})
        for node in ALL:
            nodes.disks[node] = Volumes(good=FaultyDisk(Random(node)), bad=FaultyDisk(Random(node)))
        try:
            await nodes.start()
            await make_topic(nodes, *ALL, partitions=2)
            bad = replica(nodes[3], index=1).directory
            assert bad is not replica(nodes[3], index=0).directory
            bad.health.sync_failed(OSError(errno.EIO, os.strerror(errno.EIO)), "cannot sync")
            assert nodes[3].stages.replication.lifecycle is not None
            nodes[3].stages.replication.lifecycle.wake()
            await eventually(lambda: isr(nodes, 0) == isr(nodes, 1) == [1, 2])
            await eventually(lambda: isr(nodes, 0) == [1, 2, 3])
            assert isr(nodes, 1) == [1, 2]
            named = [
                (topic.topic_id, topic.partitions)
                for topic in nodes[3].stages.healing.full_directories.without_room()
            ]
            assert named == [(nodes[3].stages.cluster.image.topics[TOPIC].id, [1])]
        finally:
            await nodes.close()

    run(main())


def test_a_replica_that_returns_without_its_disk_is_no_eligible_leader() -> None:
    """Its shutdown was clean, but it would lead a log that cannot be read."""

    def partition(nodes: Cluster, index: int) -> PartitionImage:
        return nodes[LEADER].stages.cluster.image.topics[TOPIC].partitions[index]

    async def main() -> None:
        nodes = Cluster(ALL, config={"log.dirs": "/good,/bad"})
        good, bad = FaultyDisk(Random(1)), FaultyDisk(Random(2))
        nodes.disks[2] = Volumes(good=good, bad=bad)
        try:
            await nodes.start()
            await make_topic(nodes, LEADER, 2, partitions=2)
            assert replica(nodes[2], index=1).directory.path == "/bad"
            await nodes.stop(2)
            await eventually(lambda: partition(nodes, 1).elr == [2])
            nodes.disks[2] = Volumes(good=good, bad=FaultyDisk(Random(3)))
            await nodes.start(2)
            await eventually(lambda: sorted(partition(nodes, 0).isr) == [1, 2])
            assert (partition(nodes, 1).isr, partition(nodes, 1).elr) == ([1], [])
        finally:
            await nodes.close()

    run(main())


def test_a_last_leader_on_an_empty_disk_does_not_lead_and_the_other_replica_keeps_its_log() -> None:
    async def main() -> None:
        nodes = Cluster([1], [2, 3])
        try:
            await nodes.start()
            await make_topic(nodes, 2, 3, min_isr=1)
            assert (await produce(nodes, 2, b"on both")).error_code == ErrorCode.NONE
            await nodes.kill(3)
            await eventually(lambda: described(nodes[1]).isr == [2])
            assert (await produce(nodes, 2, b"on one")).error_code == ErrorCode.NONE
            await nodes.kill(2)
            nodes.disks[2] = MemoryFiles()
            await nodes.start(2)
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [2, 3])
            assert described(nodes[1]).leader == 3
            assert [replica(nodes[node]).log.end_offset for node in (2, 3)] == [1, 1]
        finally:
            await nodes.close()

    run(main())


def test_the_replicas_of_a_failed_directory_are_rebuilt_on_another_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker is up, and keeps the replicas in its other directory."""
    # A new controller waits for two sessions, which are long here.
    monkeypatch.setattr("penstock.broker.node.healer._SESSIONS", 0)

    async def main() -> None:
        config = {"penstock.self.healing.enable": "true", "penstock.self.healing.delay.ms": "0"}
        nodes = Cluster([1, 2, 3], [4], config)
        for node in nodes.settings:
            nodes.settings[node]["log.dirs"] = "/good,/bad"
            nodes.disks[node] = Volumes(good=FaultyDisk(Random(node)), bad=FaultyDisk(Random(node)))
        try:
            await nodes.start()
            for name in ("one", "two"):
                await make_topic(nodes, 1, 2, 3, name=name)
                assert (await produce(nodes, 1, b"kept", name=name)).error_code == ErrorCode.NONE
            error = OSError(errno.EIO, os.strerror(errno.EIO))
            bad = next(d for d in nodes[3].stages.storage.partitions.directories if d.path == "/bad")
            (lost,) = (partition.topic for partition in nodes[3].stages.storage.partitions.in_directory(bad))
            (kept,) = {"one", "two"} - {lost}
            bad.health.failed(error, "cannot write")
            assert nodes[3].stages.replication.lifecycle is not None
            nodes[3].stages.replication.lifecycle.wake()
            await eventually(lambda: sorted(described(nodes[1], lost).replicas) == [1, 2, 4])
            await eventually(lambda: replica(nodes[4], lost).log.high_watermark == 1)
            await eventually(lambda: sorted(described(nodes[1], kept).isr) == [1, 2, 3])
            assert described(nodes[1], kept).replicas == [1, 2, 3]
            assert not nodes[1].stages.cluster.image.brokers[3].fenced
        finally:
            await nodes.close()

    run(main())
