"""The test kit of queues: time that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import Admin, LockLost, Producer, Queue
from penstock.testing import QueueCluster


def test_a_lock_expires_when_time_passes(penstock_queues: QueueCluster) -> None:
    running = penstock_queues
    running.send("orders", "one", key="k")

    async def play() -> None:
        slow = Queue(running.bootstrap, "orders", group="workers", renew_for=0, fetch_max_wait=0.05)
        quick = Queue(running.bootstrap, "orders", group="workers", fetch_max_wait=0.05)
        async with slow, quick:
            late = await anext(slow)
            assert await quick.poll(wait=0.5) == []
            assert running.lag("workers") == 1
            running.advance(31)
            again = await anext(quick)
            assert (again.value, again.key, again.delivery_count) == (b"one", b"k", 2)
            with pytest.raises(LockLost, match="INVALID_RECORD_STATE"):
                await late.accept()
            await again.accept()
            assert running.lag("workers") == 0

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_renewed_lock_lasts_longer(penstock_queues: QueueCluster) -> None:
    running = penstock_queues
    running.send("orders", "one")

    async def play() -> None:
        slow = Queue(running.bootstrap, "orders", group="workers", renew_for=0, fetch_max_wait=0.05)
        async with slow, Queue(running.bootstrap, "orders", group="workers", fetch_max_wait=0.05) as other:
            message = await anext(slow)
            running.advance(20)
            await message.renew()
            running.advance(20)
            assert await other.poll(wait=0.2) == []
            await message.accept()

    asyncio.run(asyncio.wait_for(play(), 60))


def test_a_delayed_message_comes_when_its_time_has_passed(penstock_queues: QueueCluster) -> None:
    running = penstock_queues

    async def play() -> None:
        async with Admin(running.bootstrap) as admin:
            await admin.create_topic("reminders")
            later = {"penstock.delay.target": "reminders", "retention.ms": "-1"}
            await admin.create_topic("reminders.later", config=later)
        async with Producer(running.bootstrap, linger=0) as producer:
            await producer.send("reminders.later", "tomorrow", key="k", delay=60)
        async with Queue(running.bootstrap, "reminders", group="workers", fetch_max_wait=0.05) as queue:
            assert await queue.poll(wait=0.3) == []
            running.advance(61)
            message = await anext(queue)
            assert (message.value, message.key, message.headers) == (b"tomorrow", b"k", [])

    asyncio.run(asyncio.wait_for(play(), 60))
