"""Create time is the producer's, append time is the broker's, and a topic says which it wants."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from kafka import KafkaProducer
from kafka.errors import InvalidTimestampError

from tests.interop.adapters import ADAPTERS, Adapter, ConfluentKafka
from tests.interop.conftest import NewTopicNamed
from tests.interop.message import Message

LONG_AGO = 1_234_567_890_123
adapters = pytest.mark.parametrize("adapter", ADAPTERS[:3], ids=lambda a: a.name)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@adapters
def test_create_time_is_kept(bootstrap: str, new_topic: NewTopicNamed, adapter: Adapter) -> None:
    topic = new_topic()
    adapter.produce(bootstrap, topic, [Message(b"k", b"v", timestamp=LONG_AGO + i) for i in range(3)])
    for reader in ADAPTERS[:3]:
        assert [m.timestamp for m in reader.consume(bootstrap, topic, 3)] == [LONG_AGO + i for i in range(3)]


@adapters
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_append_time_is_the_brokers(
    bootstrap: str, new_topic: NewTopicNamed, adapter: Adapter, codec: str
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = now_ms()
    adapter.produce(bootstrap, topic, [Message(b"k", b"v", timestamp=LONG_AGO)] * 3, codec)
    after = now_ms()
    for reader in ADAPTERS[:3]:
        times = [m.timestamp for m in reader.consume(bootstrap, topic, 3)]
        assert all(t is not None and before <= t <= after for t in times)
        assert len(set(times)) == 1, "records of one batch have one append time"


@pytest.mark.parametrize(
    ("kind", "shown"),
    [("CreateTime", TIMESTAMP_CREATE_TIME), ("LogAppendTime", TIMESTAMP_LOG_APPEND_TIME)],
)
def test_readers_see_the_type_of_the_timestamp(
    bootstrap: str, new_topic: NewTopicNamed, kind: str, shown: int
) -> None:
    topic = new_topic(message_timestamp_type=kind)
    ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"v")])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(60).timestamp()[0] == shown
    consumer.close()


def test_a_producer_gets_the_append_time(bootstrap: str, new_topic: NewTopicNamed) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    shown = producer.send(topic, b"v", timestamp_ms=LONG_AGO).get(60)
    producer.close()
    (read,) = ConfluentKafka().consume(bootstrap, topic, 1)
    assert shown.timestamp == read.timestamp != LONG_AGO


def test_a_topic_changes_its_mind(bootstrap: str, new_topic: NewTopicNamed) -> None:
    """Each batch carries which time it has, so old ones stay what they were."""
    from confluent_kafka.admin import (
        AdminClient,
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    topic = new_topic()
    ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"1", timestamp=LONG_AGO)])
    entry = ConfigEntry(
        "message.timestamp.type", "LogAppendTime", incremental_operation=AlterConfigOpType.SET
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    (altered,) = admin.incremental_alter_configs([resource]).values()
    altered.result(timeout=60)
    before = now_ms()
    ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"2", timestamp=LONG_AGO)])
    first, second = ConfluentKafka().consume(bootstrap, topic, 2)
    assert first.timestamp == LONG_AGO
    assert second.timestamp is not None
    assert second.timestamp >= before


def test_a_timestamp_too_far_ahead_is_refused(bootstrap: str, new_topic: NewTopicNamed) -> None:
    """KIP-937: an hour ahead of the broker's clock is the most that a topic takes by default."""
    topic = new_topic()
    ahead = Message(b"k", b"v", timestamp=now_ms() + 2 * 3_600_000)
    with pytest.raises(KafkaException) as refused:
        ConfluentKafka().produce(bootstrap, topic, [ahead])
    assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP
    with pytest.raises(InvalidTimestampError):
        ADAPTERS[1].produce(bootstrap, topic, [ahead])


def test_a_timestamp_too_old_is_refused_by_a_topic_with_a_limit(
    bootstrap: str, new_topic: NewTopicNamed
) -> None:
    topic = new_topic(message_timestamp_before_max_ms="60000")
    with pytest.raises(KafkaException) as refused:
        ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"v", timestamp=LONG_AGO)])
    assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP
    ConfluentKafka().produce(bootstrap, topic, [Message(b"k", b"v")])
