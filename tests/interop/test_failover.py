"""Real clients through the deaths of leaders: nothing acknowledged is lost, clients see a delay only.

Any error that a library raises ends a test: what it retries by itself is its own business.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonTopicPartition

from penstock.testing import Cluster, cluster
from tests.interop.jars import JARS
from tests.testing.cluster_clients import create

COUNT = 150
TOPIC = "t"
WAIT_S = 60.0
VALUES = [b"%d" % n for n in range(COUNT)]
PROGRAM = Path(__file__).parent / "java" / "Failover.java"


@pytest.fixture
def running() -> Iterator[Cluster]:
    with cluster(brokers=3) as three:
        create(three, TOPIC)
        yield three


def disturb(running: Cluster, sent: int) -> None:
    """Kill the leader when a third is sent, bring it back, and kill its successor when two thirds are."""
    if sent in (COUNT // 3, 2 * COUNT // 3):
        for broker in running.ids:
            if not running.is_running(broker):
                running.start(broker)
        running.wait_for_isr(TOPIC)
        running.kill(running.wait_for_leader(TOPIC))


def disturbed(running: Cluster) -> Iterator[bytes]:
    for sent, value in enumerate(VALUES):
        disturb(running, sent)
        yield value


# -- each client: send one after the other, and read all


def confluent_produce(bootstrap: str, values: Iterator[bytes]) -> None:
    def delivered(error: object, _: Message) -> None:
        if error is not None:
            errors.append(error)

    errors: list[object] = []
    settings = {"enable.idempotence": True, "log_level": 0}
    producer = Producer({"bootstrap.servers": bootstrap, **settings})
    for value in values:
        producer.produce(TOPIC, value, on_delivery=delivered)
        assert producer.flush(WAIT_S) == 0
    assert not errors


def confluent_consume(bootstrap: str) -> list[bytes]:
    settings = {"group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    with closing(Consumer({"bootstrap.servers": bootstrap, **settings})) as consumer:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        read: list[bytes] = []
        while len(read) < COUNT:
            (message,) = consumer.consume(1, WAIT_S)
            if message.error():
                raise KafkaException(message.error())
            read.append(message.value() or b"")
    return read


def kafka_python_produce(bootstrap: str, values: Iterator[bytes]) -> None:
    with closing(KafkaProducer(bootstrap_servers=bootstrap.split(","), enable_idempotence=True)) as producer:
        for value in values:
            producer.send(TOPIC, value, partition=0).get(WAIT_S)


def kafka_python_consume(bootstrap: str) -> list[bytes]:
    where = KafkaPythonTopicPartition(TOPIC, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=None)
    read: list[bytes] = []
    with closing(consumer):
        consumer.assign([where])
        consumer.seek(where, 0)
        while len(read) < COUNT:
            read += [record.value for record in consumer.poll(1000).get(where, ())]
    return read


def aiokafka_produce(bootstrap: str, values: Iterator[bytes]) -> None:
    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True) as producer:
            for value in values:
                await producer.send_and_wait(TOPIC, value, partition=0)

    asyncio.run(run())


def aiokafka_consume(bootstrap: str) -> list[bytes]:
    where = AioTopicPartition(TOPIC, 0)

    async def run() -> list[bytes]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
        consumer.assign([where])
        async with consumer:
            consumer.seek(where, 0)
            return [(await consumer.getone()).value for _ in range(COUNT)]

    return asyncio.run(run())


# kafka-python leaves sockets open that did not get through to a broker, for whenever garbage is collected.
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
@pytest.mark.parametrize(
    ("produce", "consume"),
    [
        pytest.param(confluent_produce, confluent_consume, id="confluent-kafka"),
        pytest.param(kafka_python_produce, kafka_python_consume, id="kafka-python"),
        pytest.param(aiokafka_produce, aiokafka_consume, id="aiokafka"),
    ],
)
def test_leaders_die_and_clients_go_on(
    running: Cluster,
    produce: Callable[[str, Iterator[bytes]], None],
    consume: Callable[[str], list[bytes]],
) -> None:
    with ThreadPoolExecutor(1) as beside:
        read = beside.submit(consume, running.bootstrap)
        produce(running.bootstrap, disturbed(running))
        assert read.result(WAIT_S) == VALUES
    gc.collect()  # or resources that clients left open are reported in a later test


@pytest.mark.process
@pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed")
@pytest.mark.skipif(not list(JARS.glob("kafka-clients-*.jar")), reason="the lab has no Apache Kafka")
def test_leaders_die_and_java_goes_on(running: Cluster) -> None:
    """The program says what is acknowledged, and in the end what it has read meanwhile."""
    process = subprocess.Popen(
        ["java", "-Xmx256m", "-cp", f"{JARS}/*", str(PROGRAM), running.bootstrap, TOPIC, str(COUNT)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    with process:
        read = []
        for line in process.stdout:
            kind, number = line.split()
            if kind == "acknowledged":
                disturb(running, int(number) + 1)
            else:
                read.append(number.encode())
        complaint = process.stderr.read()
    assert process.returncode == 0, complaint[-3000:]
    assert read == VALUES
