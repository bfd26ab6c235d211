"""The delivery modes, shown by a process that dies in the middle of a message."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import Consumer, Producer, Record
from penstock.testing import Cluster, cluster
from tests.client.conftest import QUICK_GROUPS

pytestmark = pytest.mark.process

COUNT = 10
CRASHES_AT = 6

#: Writes each message's number to a file before it works on it, and dies while it works on one of them.
CHILD = """
import asyncio, os, signal, sys
from penstock import Consumer

bootstrap, topic, delivery, style, seen, crashes_at = sys.argv[1:]

async def work(message):
    with open(seen, "a") as out:
        print(message.value.decode(), file=out)
    if message.value.decode() == crashes_at:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    consumer = Consumer(bootstrap, topic, group=topic, delivery=delivery, max_batch=3, commit_interval=0.05)
    async with consumer:
        if style == "loop":
            async for message in consumer:
                await work(message)
        else:
            await consumer.run(work, style=style)

asyncio.run(main())
"""

#: how long a member that died counts as one; those that live have so much time, too
SESSION_S = 45


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with cluster(brokers=1, config=QUICK_GROUPS) as running:
        yield running


@pytest.fixture
def bootstrap(running: Cluster) -> str:
    return running.bootstrap


def crash(running: Cluster, topic: str, delivery: str, style: str, seen: Path) -> list[int]:
    """What a consumer has begun to work on until it died; its session is over then."""
    arguments = [running.bootstrap, topic, delivery, style, str(seen), str(CRASHES_AT)]
    done = subprocess.run([sys.executable, "-c", CHILD, *arguments], timeout=120, capture_output=True)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    running.advance(SESSION_S, expire_sessions=True)
    return [int(line) for line in seen.read_text().split()]


async def fill(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        await producer.send_batch(topic, [Record(value=str(i), partition=0) for i in range(COUNT)])


async def rest(bootstrap: str, topic: str) -> list[int]:
    """What the group's next member gets."""
    seen: list[int] = []
    async with Consumer(bootstrap, topic, group=topic) as consumer:
        while COUNT - 1 not in seen:
            seen += [int(message.value) for message in await consumer.poll()]
    return seen


@pytest.mark.parametrize("style", ["loop", "fifo", "parallel"])
def test_at_least_once_repeats_and_loses_nothing(
    running: Cluster, bootstrap: str, name: str, style: str, tmp_path: Path
) -> None:
    asyncio.run(fill(bootstrap, name))
    before = crash(running, name, "at_least_once", style, tmp_path / "seen")
    after = asyncio.run(rest(bootstrap, name))
    assert before == list(range(CRASHES_AT + 1))
    assert CRASHES_AT in after
    assert after == list(range(after[0], COUNT))


@pytest.mark.parametrize("style", ["loop", "fifo", "parallel"])
def test_at_most_once_loses_and_repeats_nothing(
    running: Cluster, bootstrap: str, name: str, style: str, tmp_path: Path
) -> None:
    asyncio.run(fill(bootstrap, name))
    before = crash(running, name, "at_most_once", style, tmp_path / "seen")
    after = asyncio.run(rest(bootstrap, name))
    assert before == list(range(CRASHES_AT + 1))
    assert not set(before) & set(after)
    assert after == list(range(after[0], COUNT))
