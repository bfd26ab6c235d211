"""Consumers whose limit per partition is smaller than a batch: each of several partitions still goes on.

A broker that sends a part of a later partition's first batch makes Java's consumer and kafka-python fail.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonTopicPartition

from lab.home import REPOSITORY
from tests.interop.adapters import WAIT_S, ConfluentKafka
from tests.interop.conftest import NewTopicNamed
from tests.interop.message import Message

PARTITIONS = 3
PER_PARTITION = 10
LIMIT = 1000
JARS = Path(os.environ.get("PENSTOCK_LAB") or REPOSITORY / ".lab") / "kafka" / "libs"


def value(partition: int, number: int) -> bytes:
    return f"{partition}/{number}/".encode().ljust(3000, b"x")


EXPECTED = sorted(value(p, n) for p in range(PARTITIONS) for n in range(PER_PARTITION))


@pytest.fixture(scope="module")
def large_batches(bootstrap: str, new_topic: NewTopicNamed) -> str:
    """A topic with batches of one record, each three times as large as the consumers' limit."""
    topic = new_topic(PARTITIONS)
    for partition in range(PARTITIONS):
        for number in range(PER_PARTITION):
            ConfluentKafka().produce(
                bootstrap, topic, [Message(None, value(partition, number))], "none", partition
            )
    return topic


def test_kafka_python(bootstrap: str, large_batches: str) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        max_partition_fetch_bytes=LIMIT,
        auto_offset_reset="earliest",
    )
    read: list[bytes] = []
    with closing(consumer):
        consumer.assign([KafkaPythonTopicPartition(large_batches, p) for p in range(PARTITIONS)])
        deadline = time.monotonic() + WAIT_S
        while len(read) < len(EXPECTED) and time.monotonic() < deadline:
            for records in consumer.poll(1000).values():
                read += [record.value for record in records]
    assert sorted(read) == EXPECTED


def test_confluent_kafka(bootstrap: str, large_batches: str) -> None:
    settings = {"group.id": "unused", "enable.auto.commit": False, "max.partition.fetch.bytes": LIMIT}
    with closing(Consumer({"bootstrap.servers": bootstrap, **settings})) as consumer:
        consumer.assign([TopicPartition(large_batches, p, 0) for p in range(PARTITIONS)])
        read = consumer.consume(len(EXPECTED), WAIT_S)
    for message in read:
        if message.error():
            raise KafkaException(message.error())
    assert sorted(message.value() for message in read) == EXPECTED


@pytest.mark.process
@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")
@pytest.mark.skipif(not list(JARS.glob("kafka-tools-*.jar")), reason="the lab has no Apache Kafka")
def test_java(bootstrap: str, large_batches: str) -> None:
    tool = ["java", "-Xmx256m", "-cp", f"{JARS}/*", "org.apache.kafka.tools.consumer.ConsoleConsumer"]
    arguments = ["--bootstrap-server", bootstrap, "--topic", large_batches, "--from-beginning"]
    limits = ["--max-messages", str(len(EXPECTED)), "--timeout-ms", "30000"]
    settings = ["--command-property", f"max.partition.fetch.bytes={LIMIT}"]
    done = subprocess.run(
        [*tool, *arguments, *limits, *settings],
        capture_output=True,
        timeout=120,
    )
    assert sorted(done.stdout.splitlines()) == EXPECTED, done.stderr[-3000:]
