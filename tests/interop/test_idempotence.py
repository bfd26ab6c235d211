"""Idempotent producers of every client: many at once, and over restarts of the broker."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition

from penstock.testing import broker
from tests.interop.adapters import ConfluentKafka
from tests.interop.conftest import NewTopicNamed

TOPIC = "idempotent"
EACH = 50
#: stops and starts the broker behind the producer's back
Restart = Callable[[], None]


def test_many_producers_on_one_partition(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic()
    settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "batch.num.messages": 7}
    producers = [Producer(settings) for _ in range(30)]
    for i in range(EACH):
        for number, producer in enumerate(producers):
            producer.produce(topic, b"%d" % i, b"%d" % number)
            producer.poll(0)
    for producer in producers:
        assert producer.flush(60) == 0
    read = ConfluentKafka().consume(bootstrap, topic, EACH * len(producers))
    for number in range(len(producers)):
        assert [m.value for m in read if m.key == b"%d" % number] == [b"%d" % i for i in range(EACH)]
    where = TopicPartition(topic, 0)
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        states = admin.describe_producers([where])[where].active_producers
    assert len({s.producer_id for s in states}) == len(producers)
    assert {s.last_sequence for s in states} == {EACH - 1}


def with_confluent(bootstrap: str, restart: Restart) -> None:
    errors: list[object] = []
    quick = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **quick})
    for i in range(EACH):
        if i == EACH // 2:
            restart()
        producer.produce(TOPIC, b"%d" % i, partition=0, on_delivery=lambda e, _: errors.append(e))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert errors == [None] * EACH


def with_kafka_python(bootstrap: str, restart: Restart) -> None:
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, reconnect_backoff_max_ms=50, batch_size=100
    )
    with closing(producer):
        sent = []
        for i in range(EACH):
            if i == EACH // 2:
                restart()
            sent.append(producer.send(TOPIC, b"%d" % i, partition=0))
        assert [future.get(60).offset for future in sent] == list(range(EACH))


def with_aiokafka(bootstrap: str, restart: Restart) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True, max_batch_size=200, retry_backoff_ms=20
        )
        async with producer:
            sent = []
            for i in range(EACH):
                if i == EACH // 2:
                    await asyncio.to_thread(restart)
                sent.append(await producer.send(TOPIC, b"%d" % i, partition=0))
            assert [(await future).offset for future in sent] == list(range(EACH))

    asyncio.run(asyncio.wait_for(run(), 60))


# kafka-python forgets to close a socket that could not connect, for whenever garbage is collected.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize("produce", [with_confluent, with_kafka_python, with_aiokafka])
def test_a_producer_outlives_a_restart(tmp_path: Path, produce: Callable[[str, Restart], None]) -> None:
    """The broker's memory of sequences is in its log: a producer goes on as if nothing had happened."""
    with broker(data=tmp_path) as running:
        produce(running.bootstrap, running.restart)
        read = ConfluentKafka().consume(running.bootstrap, TOPIC, EACH)
    assert [m.value for m in read] == [b"%d" % i for i in range(EACH)]
    gc.collect()  # or it is reported in a later test
