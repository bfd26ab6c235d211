"""The test kit of queues: time that the test moves."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import LockLost, Queue
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
