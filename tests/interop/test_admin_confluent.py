"""Admin calls of confluent-kafka: what they return, what they change, and how they fail."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from lab.server import Server
from tests.interop.adapters import ConfluentKafka
from tests.interop.conftest import NewTopicNamed
from tests.interop.message import Message

WAIT_S = 60


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Any:
    return AdminClient({"bootstrap.servers": bootstrap})


def only(futures: Mapping[Any, Future[Any]]) -> Any:
    """The one result; raises the one error."""
    (future,) = futures.values()
    return future.result(timeout=WAIT_S)


def refused(futures: Mapping[Any, Future[Any]]) -> int:
    with pytest.raises(KafkaException) as error:
        only(futures)
    code: int = error.value.args[0].code()
    return code


def configs_of(admin: Any, kind: ResourceType, name: str) -> dict[str, Any]:
    found: dict[str, Any] = only(admin.describe_configs([ConfigResource(kind, name)]))
    return found


# -- topics


def test_a_topics_life(admin: Any) -> None:
    only(admin.create_topics([NewTopic("life", 3, 1, config={"retention.ms": "5000"})]))
    assert refused(admin.create_topics([NewTopic("life", 3)])) == KafkaError.TOPIC_ALREADY_EXISTS
    listed = admin.list_topics(timeout=WAIT_S).topics["life"]
    assert sorted(listed.partitions) == [0, 1, 2]
    assert all(p.leader == 1 and p.replicas == p.isrs == [1] for p in listed.partitions.values())
    only(admin.delete_topics(["life"]))
    assert "life" not in admin.list_topics(timeout=WAIT_S).topics
    assert refused(admin.delete_topics(["life"])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_validate_only_creates_nothing(admin: Any) -> None:
    only(admin.create_topics([NewTopic("never", 1)], validate_only=True))
    bad = NewTopic("never", 1, config={"retention.ms": "soon"})
    assert refused(admin.create_topics([bad], validate_only=True)) == KafkaError.INVALID_CONFIG
    assert "never" not in admin.list_topics(timeout=WAIT_S).topics


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (NewTopic("bad name", 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("x" * 250, 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("..", 1), KafkaError.TOPIC_EXCEPTION),
        (NewTopic("none", 0), KafkaError.INVALID_PARTITIONS),
        (NewTopic("two", 1, 2), KafkaError.INVALID_REPLICATION_FACTOR),
        (NewTopic("elsewhere", 1, replica_assignment=[[7]]), KafkaError.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic("config", 1, config={"no.such.thing": "1"}), KafkaError.INVALID_CONFIG),
        (NewTopic("config", 1, config={"cleanup.policy": "burn"}), KafkaError.INVALID_CONFIG),
    ],
    ids=lambda value: value.topic[:12] if isinstance(value, NewTopic) else None,
)
def test_topics_that_cannot_be(admin: Any, topic: NewTopic, code: int) -> None:
    assert refused(admin.create_topics([topic])) == code


def test_dots_and_underscores_collide(admin: Any) -> None:
    """Names of metrics do not distinguish them."""
    only(admin.create_topics([NewTopic("col.li_de", 1)]))
    assert refused(admin.create_topics([NewTopic("col_li.de", 1)])) == KafkaError.TOPIC_EXCEPTION


def test_describe_topics(admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic(2)
    described = only(admin.describe_topics(TopicCollection([name]), request_timeout=WAIT_S))
    assert (described.name, described.is_internal) == (name, False)
    assert [p.id for p in described.partitions] == [0, 1]
    assert all(p.leader.id == 1 and [n.id for n in p.isr] == [1] for p in described.partitions)
    unknown = admin.describe_topics(TopicCollection(["absent"]), request_timeout=WAIT_S)
    assert refused(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_that_is_made_again_is_another_one(bootstrap: str, admin: Any) -> None:
    ids = []
    for value in (b"old", b"new"):
        only(admin.create_topics([NewTopic("again", 1)]))
        ids.append(only(admin.describe_topics(TopicCollection(["again"]))).topic_id)
        ConfluentKafka().produce(bootstrap, "again", [Message(b"k", value)])
        assert [m.value for m in ConfluentKafka().consume(bootstrap, "again", 1)] == [value]
        only(admin.delete_topics(["again"]))
    assert str(ids[0]) != str(ids[1])


def test_more_partitions(bootstrap: str, admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic(1)
    only(admin.create_partitions([NewPartitions(name, 4)]))
    assert len(admin.list_topics(name, timeout=WAIT_S).topics[name].partitions) == 4
    ConfluentKafka().produce(bootstrap, name, [Message(b"k", b"new partition")], partition=3)
    assert refused(admin.create_partitions([NewPartitions(name, 4)])) == KafkaError.INVALID_PARTITIONS
    assert refused(admin.create_partitions([NewPartitions(name, 2)])) == KafkaError.INVALID_PARTITIONS
    assert refused(admin.create_partitions([NewPartitions("absent", 2)])) == KafkaError.UNKNOWN_TOPIC_OR_PART
    only(admin.create_partitions([NewPartitions(name, 9)], validate_only=True))
    assert len(admin.list_topics(name, timeout=WAIT_S).topics[name].partitions) == 4


def test_a_running_producer_finds_new_partitions(
    bootstrap: str, admin: Any, new_topic: NewTopicNamed
) -> None:
    name = new_topic(1)
    producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 50})
    producer.produce(name, b"first")
    assert producer.flush(WAIT_S) == 0
    only(admin.create_partitions([NewPartitions(name, 2)]))
    producer.list_topics(name, timeout=WAIT_S)
    delivered: list[int] = []
    producer.produce(name, b"second", partition=1, on_delivery=lambda e, m: delivered.append(m.partition()))
    assert producer.flush(WAIT_S) == 0
    assert delivered == [1]


def test_topics_are_made_when_they_are_mentioned(bootstrap: str, admin: Any) -> None:
    ConfluentKafka().produce(bootstrap, "mentioned", [Message(b"k", b"v")])
    assert "mentioned" in admin.list_topics(timeout=WAIT_S).topics
    # librdkafka's consumers do not request it (allow.auto.create.topics is false there).
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})) as consumer:
        requested = consumer.list_topics("never-mentioned", timeout=WAIT_S).topics["never-mentioned"]
    assert requested.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    assert "never-mentioned" not in admin.list_topics(timeout=WAIT_S).topics


# -- configs


def test_incremental_alterations(admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic(1, cleanup_policy="delete", retention_ms="1000")

    def alter(*entries: tuple[str, str | None, AlterConfigOpType]) -> Mapping[Any, Future[Any]]:
        wanted = [ConfigEntry(n, v, incremental_operation=op) for n, v, op in entries]
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=wanted)
        futures: Mapping[Any, Future[Any]] = admin.incremental_alter_configs([resource])
        return futures

    only(
        alter(
            ("cleanup.policy", "compact", AlterConfigOpType.APPEND),
            ("retention.ms", None, AlterConfigOpType.DELETE),
            ("segment.bytes", "5000000", AlterConfigOpType.SET),
        )
    )
    found = configs_of(admin, ResourceType.TOPIC, name)
    assert found["cleanup.policy"].value == "delete,compact"
    assert found["retention.ms"].value == "604800000"
    assert found["retention.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["segment.bytes"].value == "5000000"
    assert found["segment.bytes"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    only(alter(("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)))
    assert configs_of(admin, ResourceType.TOPIC, name)["cleanup.policy"].value == "compact"
    assert refused(alter(("retention.ms", "soon", AlterConfigOpType.SET))) == KafkaError.INVALID_CONFIG
    assert refused(alter(("no.such.thing", "1", AlterConfigOpType.SET))) == KafkaError.INVALID_CONFIG


@pytest.mark.filterwarnings("ignore:.*deprecated.*:DeprecationWarning")
def test_the_older_alteration_replaces_everything(admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic(1, retention_ms="1000", segment_bytes="5000000")
    resource = ConfigResource(ResourceType.TOPIC, name, set_config={"retention.ms": "2000"})
    only(admin.alter_configs([resource]))
    found = configs_of(admin, ResourceType.TOPIC, name)
    assert found["retention.ms"].value == "2000"
    assert found["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value


def test_synonyms_name_the_source_of_a_value(admin: Any, new_topic: NewTopicNamed) -> None:
    found = configs_of(admin, ResourceType.TOPIC, new_topic(1, retention_ms="1000"))["retention.ms"]
    assert (found.value, found.is_read_only, found.is_sensitive) == ("1000", False, False)
    assert "retention.ms" in found.synonyms


def test_broker_configs(admin: Any) -> None:
    found = configs_of(admin, ResourceType.BROKER, "1")
    assert found["node.id"].value == "1"
    assert found["node.id"].is_read_only
    assert found["log.retention.hours"].value == "168"
    unknown = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "absent")])
    assert refused(unknown) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_dynamic_broker_config_reaches_topics(bootstrap: str, admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic()

    def set_on_broker(value: str | None) -> None:
        operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
        entry = ConfigEntry("message.max.bytes", value, incremental_operation=operation)
        only(
            admin.incremental_alter_configs(
                [ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])]
            )
        )

    set_on_broker("2000")
    try:
        entry = configs_of(admin, ResourceType.TOPIC, name)["max.message.bytes"]
        assert (entry.value, entry.source) == ("2000", ConfigSource.DYNAMIC_BROKER_CONFIG.value)
        with pytest.raises(KafkaException) as error:
            ConfluentKafka().produce(bootstrap, name, [Message(b"k", b"v" * 3000)])
        assert error.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    finally:
        set_on_broker(None)
    ConfluentKafka().produce(bootstrap, name, [Message(b"k", b"v" * 3000)])


# -- cluster and records


def test_describe_cluster(server: Server, admin: Any) -> None:
    found = admin.describe_cluster(request_timeout=WAIT_S).result()
    assert found.controller.id == 1
    assert [(n.id, n.host, n.port) for n in found.nodes] == [(1, "127.0.0.1", server.port)]
    assert found.cluster_id == admin.list_topics(timeout=WAIT_S).cluster_id
    assert len(found.cluster_id) == 22


def test_delete_records(bootstrap: str, admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic()
    for i in range(5):
        ConfluentKafka().produce(bootstrap, name, [Message(b"k", b"%d" % i)])
    assert only(admin.delete_records([TopicPartition(name, 0, 3)])).low_watermark == 3
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "auto.offset.reset": "earliest"}
        | {"enable.auto.commit": False}
    )
    assert consumer.get_watermark_offsets(TopicPartition(name, 0), timeout=WAIT_S) == (3, 5)
    consumer.assign([TopicPartition(name, 0, 0)])
    assert consumer.poll(WAIT_S).value() == b"3"
    consumer.close()
    assert refused(admin.delete_records([TopicPartition(name, 0, 9)])) == KafkaError.OFFSET_OUT_OF_RANGE
    assert only(admin.delete_records([TopicPartition(name, 0, -1)])).low_watermark == 5
