"""The clients across a broker that is killed, and with Apache Kafka: they know brokers from the wire only."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.penstock import penstock
from lab.server import Server
from penstock.client import Admin, Consumer, Producer, Queue
from penstock.testing import queues
from tests.client.conftest import QUICK_GROUPS

KILLS = 2
BETWEEN_KILLS = 100


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A broker that keeps its disk and its port over restarts."""
    server = penstock(tmp_path, QUICK_GROUPS)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
def queue_bootstrap() -> Iterator[str]:
    with queues() as running:
        yield running.bootstrap


def kill(server: Server) -> None:
    assert server.process is not None
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(60)
    server.start()


class Crossing:
    """A producer that numbers what it sends and notes what was acknowledged, and a consumer of all of it."""

    def __init__(self) -> None:
        self.acknowledged: set[int] = set()
        self.read: set[int] = set()
        self.sent_all = False

    async def send(self, server: Server) -> None:
        """Go on sending while the broker is killed, from another thread, again and again."""
        async with Producer(server.bootstrap, linger=0) as producer:
            number = 0
            for _ in range(KILLS):
                enough = number + BETWEEN_KILLS
                killed = None
                while killed is None or not killed.done() or number < enough + BETWEEN_KILLS:
                    await producer.send("crossing", str(number).encode(), key=str(number).encode())
                    self.acknowledged.add(number)
                    number += 1
                    if killed is None and number >= enough:
                        killed = asyncio.get_running_loop().run_in_executor(None, kill, server)
                await killed
        self.sent_all = True

    async def receive(self, bootstrap: str) -> None:
        async with Consumer(bootstrap, "crossing", group="readers", commit_interval=0.05) as consumer:
            while not (self.sent_all and self.read >= self.acknowledged):
                self.read |= {int(message.value) for message in await consumer.poll(wait=0.2)}

    async def run(self, server: Server) -> None:
        async with Admin(server.bootstrap) as admin:
            await admin.create_topic("crossing", partitions=3)
        await asyncio.wait_for(asyncio.gather(self.send(server), self.receive(server.bootstrap)), 120)


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(server: Server) -> None:
    """Neither client is made anew: they find the broker again by themselves, and the group its offsets."""
    crossing = Crossing()
    asyncio.run(crossing.run(server))
    assert len(crossing.acknowledged) >= 2 * KILLS * BETWEEN_KILLS
    assert crossing.read == crossing.acknowledged


async def _both_ways(bootstrap: str) -> list[tuple[str | None, bytes]]:
    """Through all three clients, and through a second member of the group where the first has stopped."""
    async with Admin(bootstrap) as admin:
        await admin.create_topic("ours", partitions=2)
    async with Producer(bootstrap, compression="lz4") as producer:
        for number in range(20):
            await producer.send("ours", str(number).encode(), key=b"one", headers={"n": str(number).encode()})
    seen: list[tuple[str | None, bytes]] = []
    for stop in (10, 20):
        async with Consumer(bootstrap, "ours", group="us", max_batch=5) as consumer:
            async for message in consumer:
                header = dict(message.headers)["n"]
                seen.append((None if header is None else header.decode(), message.value))
                if len(seen) == stop:
                    break
    async with Admin(bootstrap) as admin:
        assert "us" in await admin.groups()
    return seen


EVERYTHING_ONCE = [(str(number), str(number).encode()) for number in range(20)]


def test_the_next_member_goes_on_where_one_closed(bootstrap: str) -> None:
    """Closing commits all that was processed, and nothing older after that."""
    assert asyncio.run(_both_ways(bootstrap)) == EVERYTHING_ONCE


@pytest.mark.slow
def test_apache_kafka_is_as_good_a_broker(real_kafka: str) -> None:
    assert asyncio.run(asyncio.wait_for(_both_ways(real_kafka), 120)) == EVERYTHING_ONCE


async def _queue_both_ways(bootstrap: str) -> list[tuple[bytes, int]]:
    """Every outcome through a queue; the messages with their delivery counts."""
    async with Producer(bootstrap) as producer:
        for value in ("accept", "release", "reject", "renew"):
            await producer.send("work", value, partition=0)
    seen: list[tuple[bytes, int]] = []
    async with Queue(
        bootstrap, "work", group="workers", acknowledgement="explicit", max_deliveries=3
    ) as queue:
        while len(seen) < 6:
            for message in await queue.poll(wait=1.0):
                seen.append((message.value, message.delivery_count))
                if message.value == b"release" and message.delivery_count < 3:
                    await message.release()
                elif message.value == b"reject":
                    await message.reject()
                else:
                    await (message.renew() if message.value == b"renew" else message.accept())
                    if message.is_held:
                        await message.accept()
    return sorted(seen)


EVERY_OUTCOME = [
    (b"accept", 1),
    (b"reject", 1),
    (b"release", 1),
    (b"release", 2),
    (b"release", 3),
    (b"renew", 1),
]


def test_a_queue_delivers_by_the_outcomes(queue_bootstrap: str) -> None:
    assert asyncio.run(asyncio.wait_for(_queue_both_ways(queue_bootstrap), 60)) == EVERY_OUTCOME


@pytest.mark.slow
def test_a_queue_works_on_apache_kafka(real_kafka: str) -> None:
    assert asyncio.run(asyncio.wait_for(_queue_both_ways(real_kafka), 120)) == EVERY_OUTCOME
