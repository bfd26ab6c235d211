"""Groups in kafka-python and aiokafka, group administration, and offsets that outlive a broker's death."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaConsumer
from kafka.structs import TopicPartition as KafkaPythonPartition

from lab.penstock import penstock
from lab.server import Server

PATIENCE_S = 60.0
SETTINGS = {"group.initial.rebalance.delay.ms": "50", "penstock.log.level": "warning"}
_numbers = count()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = penstock(tmp_path_factory.mktemp("groups"), SETTINGS)
    server.start()
    try:
        yield server
    finally:
        server.stop()
    assert "handler_failed" not in server.log.read_text()


@pytest.fixture
def bootstrap(server: Server) -> str:
    return server.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    """Two partitions with ten messages each."""
    return filled(bootstrap, f"others-{next(_numbers)}")


@pytest.fixture
def group() -> str:
    return f"others-group-{next(_numbers)}"


def filled(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(20):
        producer.produce(name, str(number), partition=number % 2)
    assert producer.flush(60) == 0
    return name


# -- kafka-python


def kafka_python(bootstrap: str, group: str) -> Any:
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        metadata_max_age_ms=500,
    )


def test_kafka_python_shares_a_topic_and_commits(bootstrap: str, topic: str, group: str) -> None:
    with closing(kafka_python(bootstrap, group)) as first:
        first.subscribe([topic])
        seen = poll_until(lambda seen: len(seen) == 20, first)
        assert sorted(seen, key=int) == [str(n) for n in range(20)]
        first.commit()
        with closing(kafka_python(bootstrap, group)) as second:
            second.subscribe([topic])
            poll_until(lambda _: len(first.assignment()) == len(second.assignment()) == 1, first, second)
            assert first.assignment() | second.assignment() == {
                KafkaPythonPartition(topic, 0),
                KafkaPythonPartition(topic, 1),
            }
        assert first.committed(KafkaPythonPartition(topic, 0)) == 10


def poll_until(condition: Any, *consumers: Any) -> list[str]:
    seen: list[str] = []
    deadline = time.monotonic() + PATIENCE_S
    while not condition(seen):
        assert time.monotonic() < deadline
        for consumer in consumers:
            for messages in consumer.poll(timeout_ms=50).values():
                seen += [message.value.decode() for message in messages]
    return seen


# -- aiokafka


def test_aiokafka_shares_a_topic_and_commits(bootstrap: str, topic: str, group: str) -> None:
    def consumer() -> Any:
        return AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=100,
        )

    async def run() -> None:
        async with consumer() as first:
            seen = [(await asyncio.wait_for(anext(first), PATIENCE_S)).value.decode() for _ in range(20)]
            assert sorted(seen, key=int) == [str(n) for n in range(20)]
            await first.commit()
            async with consumer() as second:
                async with asyncio.timeout(PATIENCE_S):
                    while not len(first.assignment()) == len(second.assignment()) == 1:
                        await asyncio.gather(first.getmany(timeout_ms=20), second.getmany(timeout_ms=20))
                for partition in first.assignment() | second.assignment():
                    assert await second.committed(partition) == 10

    asyncio.run(run())


# -- administrators


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_administrators_see_reset_and_delete_groups(
    bootstrap: str, topic: str, group: str, protocol: str
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "log_level": 0}
        | {"auto.offset.reset": "earliest", "client.id": "someone"}
    )
    consumer.subscribe([topic])
    read = 0
    deadline = time.monotonic() + PATIENCE_S
    while read < 20 and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        read += message is not None and message.error() is None
    assert read == 20
    consumer.commit(asynchronous=False)

    # The broker learns from the next heartbeat that the member has taken its partitions.
    while (described := admin.describe_consumer_groups([group])[group].result(60)).state.name != "STABLE":
        assert time.monotonic() < deadline, described.state
    (member,) = described.members
    assert (member.client_id, member.host) == ("someone", "/127.0.0.1")
    assert {p.partition for p in member.assignment.topic_partitions} == {0, 1}
    listed = admin.list_consumer_groups().result(60)
    assert group in [g.group_id for g in listed.valid] and not listed.errors
    with pytest.raises(Exception, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(60)
    consumer.close()

    assert lag(admin, group, topic) == 0
    wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 3)])]
    admin.alter_consumer_group_offsets(wanted)[group].result(60)
    assert lag(admin, group, topic) == 7
    admin.delete_consumer_groups([group])[group].result(60)
    assert (
        admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
        .result(60)
        .topic_partitions
        == []
    )
    assert group not in [g.group_id for g in admin.list_consumer_groups().result(60).valid]


def lag(admin: AdminClient, group: str, topic: str) -> int:
    requested = [ConsumerGroupTopicPartitions(group)]
    committed = admin.list_consumer_group_offsets(requested)[group].result(60).topic_partitions
    ends = admin.list_offsets({TopicPartition(topic, p.partition): OffsetSpec.latest() for p in committed})
    return sum(ends[TopicPartition(topic, p.partition)].result(60).offset - p.offset for p in committed)


def test_an_unknown_group_has_committed_nothing(bootstrap: str, topic: str, group: str) -> None:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})) as reader:
        (found,) = reader.committed([TopicPartition(topic, 0)], timeout=PATIENCE_S)
    assert (found.offset, found.error) == (-1001, None)


# -- the broker dies


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_acknowledged_commits_survive_kill_9(tmp_path: Path, protocol: str) -> None:
    """And the group goes on: its members are still in it, or come back by themselves."""
    server = penstock(tmp_path, SETTINGS | {"penstock.flush": "group"})
    server.start()
    try:
        topic = filled(server.bootstrap, "survivor")
        config = {
            "bootstrap.servers": server.bootstrap,
            "group.id": "survivors",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
            "reconnect.backoff.max.ms": 200,
        }
        consumer = Consumer(config)
        consumer.subscribe([topic])
        acknowledged: dict[int, int] = {}
        for number in range(5):
            for _ in range(3):
                message = consumer.consume(1, timeout=PATIENCE_S)[0]
                done = TopicPartition(topic, message.partition(), message.offset() + 1, f"note {number}")
                (reported,) = consumer.commit(offsets=[done], asynchronous=False)
                acknowledged[reported.partition] = reported.offset
            assert server.process is not None
            server.process.kill()
            server.process.wait()
            server.start()
            found = consumer.committed([TopicPartition(topic, p) for p in acknowledged], timeout=PATIENCE_S)
            assert {p.partition: p.offset for p in found} == acknowledged
            assert any((p.metadata or "").startswith("note") for p in found)
        consumer.close()
    finally:
        server.stop()
    assert "handler_failed" not in server.log.read_text()
