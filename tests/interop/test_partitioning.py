"""Keys go to the same partition, whichever client sends them."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from tests.interop.adapters import ConfluentKafka
from tests.interop.conftest import NewTopicNamed
from tests.interop.message import Message

PARTITIONS = 7
KEYS = [b"key-%d" % i for i in range(60)]


def placed_by_confluent(bootstrap: str, topic: str, partitioner: str) -> list[int]:
    placed: dict[bytes, int] = {}

    def delivered(error: object, message: Any) -> None:
        assert error is None
        placed[message.key()] = message.partition()

    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": partitioner, "linger.ms": 5})
    for key in KEYS:
        producer.produce(topic, key, key, on_delivery=delivered)
    assert producer.flush(60) == 0
    return [placed[key] for key in KEYS]


def placed_by_kafka_python(bootstrap: str, topic: str) -> list[int]:
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        return [future.get(60).partition for future in [producer.send(topic, key, key) for key in KEYS]]


async def placed_by_aiokafka(bootstrap: str, topic: str) -> list[int]:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        sent = [await producer.send(topic, key, key) for key in KEYS]
        return [(await future).partition for future in sent]


def test_murmur2_is_murmur2(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic(PARTITIONS)
    placed = placed_by_kafka_python(bootstrap, topic)
    assert set(placed) == set(range(PARTITIONS))
    assert placed_by_confluent(bootstrap, topic, "murmur2_random") == placed
    assert asyncio.run(placed_by_aiokafka(bootstrap, topic)) == placed
    for partition in range(PARTITIONS):
        expected = [key for key, p in zip(KEYS, placed, strict=True) if p == partition]
        read = ConfluentKafka().consume(bootstrap, topic, 3 * len(expected), partition=partition)
        assert sorted(m.key or b"" for m in read) == sorted(3 * expected)


def test_consistent_is_stable(bootstrap: str, new_topic: NewTopicNamed) -> None:
    """librdkafka's own default for keys (CRC32) sees the same partitions in every client's life."""
    topic = new_topic(PARTITIONS)
    first = placed_by_confluent(bootstrap, topic, "consistent_random")
    assert placed_by_confluent(bootstrap, topic, "consistent") == first
    assert set(first) == set(range(PARTITIONS))


def test_partitions_are_logs_of_their_own(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic(3)
    for partition in range(3):
        sent = [Message(b"k", b"%d %d" % (partition, i)) for i in range(partition + 1)]
        ConfluentKafka().produce(bootstrap, topic, sent, partition=partition)
    for partition in range(3):
        read = ConfluentKafka().consume(bootstrap, topic, partition + 1, partition=partition)
        assert [m.value for m in read] == [b"%d %d" % (partition, i) for i in range(partition + 1)]
