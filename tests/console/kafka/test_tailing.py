"""A live tail sends frames, and leaves nothing behind when its page is closed."""

from __future__ import annotations

import asyncio
import gc
import itertools
import time

import pytest

from penstock.client import Admin, Producer
from penstock.console.kafka.cluster import Cluster
from penstock.console.kafka.tailing import FRAME_S, tail
from penstock.model.addresses import parse_bootstrap
from penstock.testing import cluster as running_cluster


def test_a_closed_tail_has_no_pending_task(bootstrap: str, caplog: pytest.LogCaptureFixture) -> None:
    """Python logs "Task was destroyed but it is pending" for a task that is forgotten while it waits."""

    async def watch() -> None:
        async with Admin(bootstrap) as admin:
            await admin.create_topic("tailed-and-closed", partitions=1, replicas=1)
        cluster = Cluster(parse_bootstrap(bootstrap), timeout_s=20.0)
        caught = tail(cluster, "tailed-and-closed", None, None)
        await anext(caught)
        waiting = asyncio.ensure_future(anext(caught))
        done, _ = await asyncio.wait([waiting], timeout=0.2)
        assert not done
        waiting.cancel()
        await asyncio.wait([waiting])
        await caught.aclose()
        await asyncio.sleep(0)
        assert [task for task in asyncio.all_tasks() if "Queue.get" in repr(task)] == []
        cluster.close()

    asyncio.run(watch())
    gc.collect()
    assert "was destroyed" not in caplog.text


def test_messages_of_all_leaders_are_joined_into_frames() -> None:
    """Three leaders sent twelve events a second: each drew the page again."""

    async def watch(bootstrap: str) -> tuple[list[float], int]:
        async with Admin(bootstrap) as admin:
            await admin.create_topic("framed", partitions=6, replicas=1)
        own = Cluster(parse_bootstrap(bootstrap), timeout_s=20.0)
        caught, at, found = tail(own, "framed", None, None), [], 0
        await anext(caught)

        async def write() -> None:
            async with Producer(bootstrap) as producer:
                for n in range(60):
                    await producer.send("framed", b"v", partition=n % 6)
                    await asyncio.sleep(0.02)  # the pace of a load

        writer = asyncio.create_task(write())
        async with asyncio.timeout(60):
            async for frame in caught:
                at.append(time.monotonic())
                found += len(frame.found)
                if found == 60:
                    break
        await writer
        await caught.aclose()
        own.close()
        return at, found

    with running_cluster(3) as brokers:
        at, found = asyncio.run(watch(brokers.bootstrap))
    assert found == 60
    # A timer may be a little early, and a busy machine is late.
    assert all(later - earlier > FRAME_S * 0.9 for earlier, later in itertools.pairwise(at))
