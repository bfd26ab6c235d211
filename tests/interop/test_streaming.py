"""Reading and writing at the same time: waiting readers, acks of all kinds, many partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, Consumer, KafkaError, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonTopicPartition

from tests.interop.adapters import ADAPTERS, ConfluentKafka
from tests.interop.conftest import NewTopicNamed
from tests.interop.message import Message

WAIT_S = 60


@contextmanager
def consumer_of(bootstrap: str, *wheres: TopicPartition, **settings: Any) -> Iterator[Any]:
    options = {"group.id": "unused", "enable.auto.commit": False}
    options |= {key.replace("_", "."): value for key, value in settings.items()}
    with closing(Consumer({"bootstrap.servers": bootstrap, **options})) as consumer:
        consumer.assign(list(wheres))
        yield consumer


def test_a_waiting_reader_is_answered_at_once(bootstrap: str, new_topic: NewTopicNamed) -> None:
    """A fetch waits at the broker: what is produced ends the wait, not the time that it may take."""
    topic = new_topic()
    where = KafkaPythonTopicPartition(topic, 0)
    options = {"bootstrap_servers": bootstrap, "group_id": None, "fetch_max_wait_ms": 4 * WAIT_S * 1000}
    with closing(KafkaConsumer(**options, request_timeout_ms=5 * WAIT_S * 1000)) as consumer:
        consumer.assign([where])
        consumer.seek(where, 0)
        consumer.poll(100)  # the fetch is under way now
        ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"v")])
        (record,) = consumer.poll(WAIT_S * 1000)[where]
        assert record.value == b"v"


def test_readers_follow_a_writer(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic(3)
    count = 3000
    wheres = [TopicPartition(topic, partition, 0) for partition in range(3)]
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "compression.type": "zstd"})
    with consumer_of(bootstrap, *wheres) as one, consumer_of(bootstrap, *wheres) as two:
        read: dict[Any, list[tuple[int, bytes]]] = {one: [], two: []}
        for i in range(count):
            producer.produce(topic, b"%d" % i, partition=i % 3)
            producer.poll(0)
            if i % 100 == 0:
                for consumer, values in read.items():
                    values += [(m.partition(), m.value()) for m in consumer.consume(1000, 0)]
        assert producer.flush(WAIT_S) == 0
        for consumer, values in read.items():
            deadline = time.monotonic() + WAIT_S
            while len(values) < count and time.monotonic() < deadline:
                values += [(m.partition(), m.value()) for m in consumer.consume(count - len(values), 0.1)]
            for partition in range(3):
                of_partition = [int(value) for p, value in values if p == partition]
                assert of_partition == list(range(partition, count, 3))


@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("client", ["confluent-kafka", "kafka-python"])
def test_acks(bootstrap: str, new_topic: NewTopicNamed, client: str, acks: int) -> None:
    topic = new_topic()
    if client == "confluent-kafka":
        producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
        for i in range(20):
            producer.produce(topic, b"%d" % i)
        assert producer.flush(WAIT_S) == 0
    else:
        options = {"acks": "all" if acks == -1 else acks, "enable_idempotence": acks == -1}
        with closing(KafkaProducer(bootstrap_servers=bootstrap, **options)) as kafka_python:
            for i in range(20):
                kafka_python.send(topic, b"%d" % i)
            kafka_python.flush(WAIT_S)
    read = ConfluentKafka().consume(bootstrap, topic, 20)
    assert [m.value for m in read] == [b"%d" % i for i in range(20)]


def test_a_producer_without_acks_gets_over_a_refusal(bootstrap: str, new_topic: NewTopicNamed) -> None:
    """With acks=0 an error has no answer to travel in: the connection closes, the client makes another."""
    topic = new_topic(max_message_bytes="1000")
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 0, "log_level": 0})
    producer.produce(topic, b"x" * 2000)
    assert producer.flush(WAIT_S) == 0
    deadline = time.monotonic() + WAIT_S
    values: list[bytes] = []
    with consumer_of(bootstrap, TopicPartition(topic, 0, 0)) as consumer:
        while not values and time.monotonic() < deadline:
            # What is sent into a connection that closes is lost without a word: that is what acks=0 means.
            producer.produce(topic, b"small")
            producer.flush(WAIT_S)
            values = [m.value() for m in consumer.consume(1, 0.2)]
    assert values == [b"small"]


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_isolation_levels(bootstrap: str, new_topic: NewTopicNamed, level: str) -> None:
    """Without transactions both see everything."""
    topic = new_topic()
    ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"v")] * 3)
    with consumer_of(bootstrap, TopicPartition(topic, 0, 0), isolation_level=level) as consumer:
        assert [m.value() for m in consumer.consume(3, WAIT_S)] == [b"v"] * 3


def test_many_partitions(bootstrap: str, new_topic: NewTopicNamed) -> None:
    """Fetch sessions of many partitions, of which few have news."""
    count = 100
    topic = new_topic(count)
    with consumer_of(bootstrap, *(TopicPartition(topic, p, 0) for p in range(count))) as consumer:
        for number, adapter in enumerate(ADAPTERS[:3]):
            partitions = (number, 50 + number, 99 - number)
            for partition in partitions:
                adapter.produce(bootstrap, topic, [Message(b"k", b"v")], partition=partition)
            read = consumer.consume(len(partitions), WAIT_S)
            assert sorted((m.partition(), m.value()) for m in read) == [(p, b"v") for p in partitions]


def test_the_end_moves(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic()
    where = TopicPartition(topic, 0, OFFSET_END)
    ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"before")])
    with consumer_of(bootstrap, where, enable_partition_eof=True, fetch_wait_max_ms=50) as consumer:
        assert consumer.poll(WAIT_S).error().code() == KafkaError._PARTITION_EOF
        ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"after")])
        assert consumer.poll(WAIT_S).value() == b"after"
        assert consumer.poll(WAIT_S).error().code() == KafkaError._PARTITION_EOF
        assert consumer.get_watermark_offsets(where, cached=True) == (0, 2)
