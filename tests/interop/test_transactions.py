"""Transactions of real clients: commit, abort, fencing, offsets, and a copy that is exactly once."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition

from tests.interop.conftest import NewTopicNamed
from tests.interop.isolation import TIMEOUT_S, read


def new_producer(bootstrap: str, transactional_id: str, **settings: Any) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})
    producer.init_transactions(TIMEOUT_S)
    return producer


def test_confluent_commits_and_aborts(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic(partitions=2)
    producer = new_producer(bootstrap, "confluent")
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(topic, f"{number}", partition=partition)
        producer.flush(TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    assert sorted(read(bootstrap, topic, partitions=2)) == sorted([b"0", b"2", b"4"] * 2)
    everything = read(bootstrap, topic, "read_uncommitted", partitions=2)
    assert sorted(everything) == sorted([b"%d" % number for number in range(6)] * 2)


def test_readers_of_committed_records_stop_before_an_open_transaction(
    bootstrap: str, new_topic: NewTopicNamed
) -> None:
    topic = new_topic()
    producer = new_producer(bootstrap, "open")
    producer.begin_transaction()
    producer.produce(topic, "a")
    producer.flush(TIMEOUT_S)
    assert read(bootstrap, topic) == []
    producer.commit_transaction(TIMEOUT_S)
    assert read(bootstrap, topic) == [b"a"]


def test_a_new_producer_fences_the_one_before(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic()
    quiet: dict[str, Any] = {"logger": None, "error_cb": lambda _: None, "log_level": 0}
    zombie = new_producer(bootstrap, "fenced", **quiet)
    zombie.begin_transaction()
    zombie.produce(topic, "zombie")
    zombie.flush(TIMEOUT_S)
    producer = new_producer(bootstrap, "fenced")
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(TIMEOUT_S)
    assert refused.value.args[0].fatal()
    producer.begin_transaction()
    producer.produce(topic, "new")
    producer.commit_transaction(TIMEOUT_S)
    assert read(bootstrap, topic) == [b"new"]


def test_a_copy_is_exactly_once(bootstrap: str, new_topic: NewTopicNamed) -> None:
    """Read, process, write, with an abort of every third transaction: the output equals the input."""
    source, target = new_topic(), new_topic()
    plain = Producer({"bootstrap.servers": bootstrap})
    for number in range(300):
        plain.produce(source, f"{number}")
    plain.flush(TIMEOUT_S)
    producer = new_producer(bootstrap, "copy")
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "copy",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
    }
    copied = attempts = 0
    while copied < 300:
        consumer = Consumer(settings)
        consumer.subscribe([source])
        messages = consumer.consume(50, TIMEOUT_S)
        assert messages
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
        attempts += 1
        if attempts % 3:
            producer.commit_transaction(TIMEOUT_S)
            copied += len(messages)
        else:
            producer.abort_transaction(TIMEOUT_S)
        consumer.close()
    assert read(bootstrap, target) == [b"%d" % number for number in range(300)]


def test_kafka_python(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap, transactional_id="kafka-python")
    with closing(producer):
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, b"%d" % number)
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", consumer_timeout_ms=60_000
    )
    with closing(consumer):
        consumer.assign([KafkaPythonPartition(topic, 0)])
        consumer.seek_to_beginning()
        found = [next(consumer).value for _ in range(2)]
    assert found == [b"0", b"2"]


def test_aiokafka(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic()

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aiokafka") as producer:
            async with producer.transaction():
                await producer.send_and_wait(topic, b"committed")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"aborted")
                    raise ZeroDivisionError
            async with producer.transaction():
                await producer.send_and_wait(topic, b"last")
        async with AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        ) as consumer:
            return [(await consumer.getone()).value for _ in range(2)]

    assert asyncio.run(asyncio.wait_for(run(), TIMEOUT_S)) == [b"committed", b"last"]
