"""`Queue` with several brokers: one that dies loses no message, and idle ones hold up none of the others."""

from __future__ import annotations

import asyncio
from collections import Counter

from penstock.client import QueueMessage
from penstock.testing import QueueCluster, queues
from tests.client.queues.sharing import quick

MESSAGES = 60


class Work:
    """Notes what was handled. One handler in ten waits, so that messages are in progress at any time."""

    def __init__(self) -> None:
        self.done: Counter[bytes] = Counter()
        self._changed = asyncio.Event()

    async def __call__(self, message: QueueMessage) -> None:
        if message.offset % 10 == 0:
            await asyncio.sleep(0.05)  # work that is in progress at a kill
        self.done[message.value] += 1
        self._changed.set()

    async def reach(self, count: int) -> None:
        while len(self.done) < count:
            self._changed.clear()
            await self._changed.wait()


def send(cluster: QueueCluster, first: int, last: int) -> None:
    cluster.send("orders", *map(str, range(first, last)))


def test_nothing_is_lost_when_a_broker_is_killed() -> None:
    """The broker is the controller, and with three partitions also the leader of one."""

    async def play(cluster: QueueCluster) -> Work:
        work = Work()
        async with quick(cluster.bootstrap, "orders", group="workers") as queue:
            running = asyncio.create_task(queue.run(work, concurrency=4))
            await asyncio.to_thread(send, cluster, 0, MESSAGES)
            await work.reach(MESSAGES // 2)
            killed = cluster.controller
            assert killed is not None
            await asyncio.to_thread(cluster.kill, killed)
            await asyncio.to_thread(send, cluster, MESSAGES, 2 * MESSAGES)
            await work.reach(2 * MESSAGES)
            queue.stop()
            await running
        return work

    with queues(3, config={"num.partitions": 3}) as cluster:
        work = asyncio.run(asyncio.wait_for(play(cluster), 100))
        assert set(work.done) == {str(n).encode() for n in range(2 * MESSAGES)}
        assert cluster.lag("workers") == 0


def test_brokers_without_messages_do_not_take_the_room_of_others() -> None:
    async def play(cluster: QueueCluster) -> Work:
        work = Work()
        async with quick(cluster.bootstrap, "orders", group="workers") as queue:
            running = asyncio.create_task(queue.run(work, concurrency=1, prefetch=0))
            await asyncio.to_thread(cluster.send, "orders", *map(str, range(MESSAGES)), key="one partition")
            await work.reach(MESSAGES)
            queue.stop()
            await running
        return work

    with queues(3, config={"num.partitions": 3}) as cluster:
        work = asyncio.run(asyncio.wait_for(play(cluster), 60))
        assert sum(work.done.values()) == MESSAGES
