"""penstock.flush=group with several replicas: only durable records count, on leaders and followers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.broker.app.broker import Broker
from penstock.broker.replica.flusher import Flusher
from penstock.model.errors import ErrorCode
from penstock.replication.follower import FollowerState
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica, stop_fetching
from tests.broker.requests import batch_of

GROUP = {"penstock.flush": "group"}


class HeldFlusher:
    """The syncs of a broker's data directory, which wait until they are let go."""

    def __init__(self, flusher: Flusher) -> None:
        self._sync = flusher._sync
        self._is_open = False
        self._is_wanted = False
        flusher._sync = self._sync_later  # type: ignore[method-assign]

    def _sync_later(self) -> None:
        if self._is_open:
            self._sync()
        self._is_wanted = True

    def let_go(self) -> None:
        self._is_open = True
        if self._is_wanted:
            self._sync()


async def leave_unsynced(nodes: Cluster) -> HeldFlusher:
    """A record that brokers 1, which leads, and 3 have, and broker 2, whose disk has not."""
    held = HeldFlusher(replica(nodes[2]).sync.flusher)
    await produce(nodes, 1, b"a", acks=1)
    await eventually(lambda: replica(nodes[2]).log.end_offset == 1)
    await eventually(lambda: [replica(nodes[n]).log.recovery_point for n in (1, 3)] == [1, 1])
    return held


class StepByStep:
    """Worker threads that begin one job at a time, each when it is let go."""

    def __init__(self, flusher: Flusher) -> None:
        self._workers = flusher._workers
        self._steps = asyncio.Semaphore(0)
        self.requested = 0
        flusher._workers = self  # type: ignore[assignment]

    async def in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        self.requested += 1
        await self._steps.acquire()
        return await self._workers.in_thread(function, *args)

    def let_go(self) -> None:
        self._steps.release()


def is_led_by(broker: Broker, leader: int) -> bool:
    return described(broker).leader == leader


def test_a_follower_fetches_on_only_after_the_sync_of_received_records() -> None:
    async def main() -> None:
        async with cluster(3, config=GROUP) as nodes:
            await make_topic(nodes, 1, 2, 3)
            held = await leave_unsynced(nodes)
            leadership = replica(nodes[1]).leadership
            assert leadership is not None
            await eventually(lambda: leadership.state.followers[3].end_offset == 1)
            assert (leadership.state.followers[2].end_offset, leadership.state.high_watermark) == (0, 0)
            held.let_go()
            await eventually(lambda: leadership.state.high_watermark == 1)

    run(main())


def test_a_new_leader_counts_only_the_synced_part_of_its_own_log() -> None:
    async def main() -> None:
        async with cluster(3, config=GROUP) as nodes:
            await make_topic(nodes, 1, 2, 3)
            held = await leave_unsynced(nodes)
            await nodes.kill(1)
            partition = replica(nodes[2])
            await eventually(lambda: partition.leadership is not None)
            assert partition.leadership is not None
            followers = partition.leadership.state.followers
            await eventually(lambda: followers[3].end_offset == 1)
            assert (partition.log.high_watermark, partition.log.recovery_point) == (0, 0)
            held.let_go()
            await eventually(lambda: partition.log.high_watermark == 1)

    run(main())


def test_a_follower_of_a_new_leader_fetches_only_after_the_sync_of_its_log() -> None:
    async def main() -> None:
        async with cluster(3, config=GROUP) as nodes:
            await make_topic(nodes, 1, 3, 2)
            held = await leave_unsynced(nodes)
            await nodes.kill(1)
            await eventually(lambda: is_led_by(nodes[2], 3) and replica(nodes[3]).leadership is not None)
            leadership = replica(nodes[3]).leadership
            assert leadership is not None
            for _ in range(50):
                await asyncio.sleep(0.002)  # no fetch may arrive meanwhile
            assert leadership.state.followers[2].end_offset < 1
            held.let_go()
            await eventually(lambda: leadership.state.followers[2].end_offset == 1)

    run(main())


def test_records_fetched_during_a_sync_wait_for_the_next_one() -> None:
    async def main() -> None:
        async with cluster(2, config=GROUP) as nodes:
            await make_topic(nodes, 1, 2)
            await make_topic(nodes, 1, 2, name="late")
            workers = StepByStep(replica(nodes[2]).sync.flusher)
            assert (await produce(nodes, 1, b"a", acks=1)).error_code == ErrorCode.NONE
            await eventually(lambda: workers.requested == 1)
            workers.let_go()
            # The one that the fetcher waits for: it began to wait in the middle of the first.
            await eventually(lambda: workers.requested == 2)
            leading, late, batch = replica(nodes[1], "late"), replica(nodes[2], "late"), batch_of([b"x"])
            fetcher, epoch = nodes[2].stages.replication.replicas._following[late.topic_id, 0]
            leading.log.append(memoryview(bytearray(batch)), epoch)
            late.log.append_replicated(memoryview(bytearray(batch)), epoch)
            fetcher.follow(late, FollowerState(1, epoch, late.log, 1000))
            workers.let_go()
            await eventually(lambda: workers.requested == 3)
            assert leading.leadership is not None
            state = leading.leadership.state
            for _ in range(50):
                await asyncio.sleep(0.002)  # no fetch may arrive meanwhile
            assert state.followers[2].end_offset < 1
            for _ in range(10):
                workers.let_go()
            await eventually(lambda: state.followers[2].end_offset == 1)

    run(main())


def test_a_sync_of_truncated_records_does_not_count_for_their_replacement() -> None:
    async def main() -> None:
        async with cluster(2, config=GROUP) as nodes:
            await make_topic(nodes, 1, 2, min_isr=1)
            await stop_fetching(nodes[2])
            partition, wanted = replica(nodes[2]), described(nodes[2])
            workers = StepByStep(partition.sync.flusher)
            batch = batch_of([b"cut"])
            partition.append_replicated(memoryview(bytearray(batch)), wanted.leader_epoch)
            await eventually(lambda: workers.requested == 1)
            partition.log.truncate_to(0)
            wanted.isr = [2]
            partition.lead(1, nodes[2].stages.replication.replicas._new_leadership(partition, wanted))
            partition.append(memoryview(bytearray(batch_of([b"kept"]))))
            workers.let_go()
            await eventually(lambda: workers.requested == 2)
            assert partition.log.recovery_point == 0
            assert partition.log.high_watermark == 0
            workers.let_go()
            await eventually(lambda: partition.log.high_watermark == 1)

    run(main())


def test_a_replica_that_becomes_the_only_one_shows_its_synced_records() -> None:
    async def main() -> None:
        async with cluster(3, config=GROUP) as nodes:
            await make_topic(nodes, 1, 2, 3)
            held = await leave_unsynced(nodes)
            partition = replica(nodes[2])
            partition.lead(partition.leader_epoch + 1, None)
            assert partition.log.high_watermark == 0
            held.let_go()
            await eventually(lambda: partition.log.high_watermark == 1)

    run(main())
