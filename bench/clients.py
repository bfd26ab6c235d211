"""The overhead of the Python clients over confluent-kafka, which they use, on the same broker.

100-byte messages in one process: the producers take one callback per message, the consumers read a topic from
its beginning. Each pair is measured in turn, several times, and the best of each counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

from confluent_kafka import Consumer as BareConsumer
from confluent_kafka import Producer as BareProducer

from bench.load import topic
from bench.table import Contender, Metric, Row, Values
from penstock import Consumer, Producer
from penstock.client import QueueFull

MESSAGES = 100_000
PAIRS = 3
VALUE = b"x" * 100
BATCH = 500
LINGER_S = 0.005
TIMEOUT_S = 120.0


def _clients(contender: Contender, scale: float) -> Values:
    bootstrap, count = contender.server.bootstrap, max(1000, int(MESSAGES * scale))
    return {
        **_pair("produce", count, bootstrap, _produce, _produce_bare),
        **_pair("consume", count, bootstrap, _consume, _consume_bare),
    }


def _pair(
    what: str,
    count: int,
    bootstrap: str,
    ours: Callable[[str, str, int], Coroutine[Any, Any, float]],
    bare: Callable[[str, str, int], float],
) -> Values:
    seconds: list[float] = []
    seconds_bare: list[float] = []
    for _ in range(PAIRS):
        with topic(bootstrap) as name:
            if what == "consume":
                _produce_bare(bootstrap, name, count)
            seconds.append(asyncio.run(asyncio.wait_for(ours(bootstrap, name, count), TIMEOUT_S)))
            seconds_bare.append(bare(bootstrap, name, count))
    best, best_bare = min(seconds), min(seconds_bare)
    return {
        f"{what}, messages/s": count / best,
        f"{what} bare, messages/s": count / best_bare,
        f"{what}, time": best / best_bare,
    }


async def _produce(bootstrap: str, name: str, count: int) -> float:
    async with Producer(bootstrap, linger=LINGER_S) as producer:
        began = time.perf_counter()
        for _ in range(count):
            while True:
                try:
                    producer.send_nowait(name, VALUE, callback=_delivered)
                    break
                except QueueFull:
                    await asyncio.sleep(0.001)
        await producer.flush()
        return time.perf_counter() - began


def _delivered(*_: Any) -> None:
    """A delivery callback: both producers have the cost of one call per message."""


def _produce_bare(bootstrap: str, name: str, count: int) -> float:
    producer = BareProducer(
        {"bootstrap.servers": bootstrap, "linger.ms": LINGER_S * 1e3, "enable.idempotence": True}
    )
    began = time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce(name, VALUE, on_delivery=_delivered)
                break
            except BufferError:
                producer.poll(0.001)
        producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"not all of {count} messages were acknowledged")
    return time.perf_counter() - began


async def _consume(bootstrap: str, name: str, count: int) -> float:
    """From the first message on: how long it takes to join the group is the broker's affair."""
    seen = 0
    began = 0.0
    async with Consumer(bootstrap, name, group=f"{name}-ours", max_batch=BATCH) as consumer:
        async for _ in consumer:
            began = began or time.perf_counter()
            seen += 1
            if seen == count:
                break
        return time.perf_counter() - began


def _consume_bare(bootstrap: str, name: str, count: int) -> float:
    consumer = BareConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"{name}-bare",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([name])
    seen, began, deadline = 0, 0.0, time.monotonic() + TIMEOUT_S
    while seen < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"only {seen} of {count} messages came")
        seen += len(consumer.consume(BATCH, 1.0))
        began = began or (time.perf_counter() if seen else 0.0)
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


ROWS = (
    Row(
        "clients",
        "the Python clients over bare confluent-kafka, 100-byte messages, one process",
        tuple(
            metric
            for what in ("produce", "consume")
            for metric in (
                Metric(f"{what}, messages/s", "", True),
                Metric(f"{what} bare, messages/s", "", True),
                Metric(f"{what}, time", "× bare", False),
            )
        ),
        _clients,
        rounds=2,
    ),
)
