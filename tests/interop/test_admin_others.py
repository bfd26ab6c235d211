"""Admin calls of kafka-python and aiokafka, which speak other versions of the same APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewPartitions, NewTopic
from kafka.errors import (
    InvalidConfigurationError,
    InvalidPartitionsError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from lab.server import Server
from tests.interop.adapters import KafkaPython
from tests.interop.conftest import NewTopicNamed
from tests.interop.message import Message


@pytest.fixture(scope="module")
def admin(bootstrap: str) -> Iterator[Any]:
    with closing(KafkaAdminClient(bootstrap_servers=bootstrap)) as admin:
        yield admin


# -- kafka-python


def test_kafka_python_topics(admin: Any) -> None:
    created = admin.create_topics([NewTopic("kp-life", 2, 1, topic_configs={"retention.ms": "5000"})])
    (result,) = created["topics"]
    assert (result["num_partitions"], result["replication_factor"]) == (2, 1)
    assert result["configs"]["retention.ms"]["value"] == "5000"
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic("kp-life", 2, 1)])
    admin.create_topics([NewTopic("kp-never", 1, 1)], validate_only=True)
    assert "kp-life" in admin.list_topics()
    assert "kp-never" not in admin.list_topics()
    admin.create_partitions({"kp-life": NewPartitions(3)})
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({"kp-life": NewPartitions(1)})
    (described,) = admin.describe_topics(["kp-life"])
    assert [p["partition_index"] for p in described["partitions"]] == [0, 1, 2]
    admin.delete_topics(["kp-life"])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics(["kp-life"])


def test_kafka_python_pages_through_partitions(admin: Any, new_topic: NewTopicNamed) -> None:
    names = [new_topic(3), new_topic(2)]
    seen: list[tuple[str, int]] = []
    cursor = None
    while True:
        page = admin.describe_topic_partitions(names, response_partition_limit=2, cursor=cursor)
        found = [(t["name"], p["partition_index"]) for t in page["topics"] for p in t["partitions"]]
        assert len(found) <= 2
        seen += found
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert sorted(seen) == sorted(
        (n, i) for n, count in zip(names, (3, 2), strict=True) for i in range(count)
    )


def test_kafka_python_configs(admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic()

    def values(**options: Any) -> dict[str, Any]:
        found = admin.describe_configs([ConfigResource("TOPIC", name)], **options)
        return dict(found["topic"][name])

    admin.alter_configs([ConfigResource("TOPIC", name, {"retention.ms": "5", "segment.bytes": "5000000"})])
    assert {n: c["value"] for n, c in values().items()} == {"retention.ms": "5", "segment.bytes": "5000000"}
    admin.reset_configs([ConfigResource("TOPIC", name, ["segment.bytes"])])
    assert list(values()) == ["retention.ms"]
    synonyms = values(config_filter="all", include_synonyms=True)["retention.ms"]["synonyms"]
    assert [s["name"] for s in synonyms][:1] == ["retention.ms"]
    refused = admin.alter_configs([ConfigResource("TOPIC", name, {"retention.ms": "soon"})])
    assert InvalidConfigurationError.__name__ in str(refused["topic"][name])
    broker = admin.describe_configs([ConfigResource("BROKER", "1")], config_filter="all")["broker"]["1"]
    assert broker["node.id"]["value"] == "1"
    assert name in admin.list_config_resources()["topic"]


def test_kafka_python_cluster(server: Server, admin: Any) -> None:
    found = admin.describe_cluster()
    assert found["controller_id"] == 1
    assert [(b["broker_id"], b["port"]) for b in found["brokers"]] == [(1, server.port)]
    assert "metadata.version" in admin.describe_features()


def test_kafka_python_records_and_log_dirs(bootstrap: str, admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic()
    KafkaPython().produce(bootstrap, name, [Message(b"k", b"%d" % i) for i in range(5)])
    where = TopicPartition(name, 0)
    ((broker),) = admin.describe_log_dirs()
    (directory,) = broker["log_dirs"]
    sizes = {t["name"]: t["partitions"][0]["partition_size"] for t in directory["topics"]}
    assert sizes[name] > 5 * 10
    assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
    assert admin.delete_records({where: 3})[where]["low_watermark"] == 3
    with pytest.raises(OffsetOutOfRangeError):
        admin.delete_records({where: 6})


def test_kafka_python_sees_producers(bootstrap: str, admin: Any, new_topic: NewTopicNamed) -> None:
    name = new_topic()
    where = TopicPartition(name, 0)
    assert admin.describe_producers([where])[where].active_producers == []
    with closing(KafkaProducer(bootstrap_servers=bootstrap)) as producer:
        for _ in range(3):
            producer.send(name, b"v").get(60)
        (state,) = admin.describe_producers([where])[where].active_producers
    assert (state.producer_epoch, state.last_sequence) == (0, 2)
    assert state.current_transaction_start_offset == -1


# -- aiokafka


def test_aiokafka_admin(bootstrap: str, server: Server) -> None:
    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await topics(admin)
            await configs(admin)
            await cluster(admin)
            await records(admin)
        finally:
            await admin.close()

    async def topics(admin: Any) -> None:
        created = await admin.create_topics(
            [AioNewTopic("aio", 2, 1, topic_configs={"retention.ms": "5000"})]
        )
        assert [error[:2] for error in created.topic_errors] == [("aio", 0)]
        again = await admin.create_topics([AioNewTopic("aio", 2, 1)])
        assert again.topic_errors[0][1] == TopicAlreadyExistsError.errno
        grown = await admin.create_partitions({"aio": AioNewPartitions(3)})
        assert grown.topic_errors[0][1] == 0
        (described,) = await admin.describe_topics(["aio"])
        assert [p["partition"] for p in described["partitions"]] == [0, 1, 2]
        assert "aio" in await admin.list_topics()

    async def configs(admin: Any) -> None:
        resource = AioConfigResource(ConfigResourceType.TOPIC, "aio", {"retention.ms": "77"})
        (altered,) = await admin.alter_configs([resource])
        assert altered.resources[0][0] == 0
        (found,) = await admin.describe_configs([AioConfigResource(ConfigResourceType.TOPIC, "aio")])
        entries = {entry[0]: entry[1] for entry in found.resources[0][4]}
        assert entries["retention.ms"] == "77"

    async def cluster(admin: Any) -> None:
        found = await admin.describe_cluster()
        assert [b["port"] for b in found["brokers"]] == [server.port]

    async def records(admin: Any) -> None:
        KafkaPython().produce(bootstrap, "aio", [Message(b"k", b"v")] * 4)
        where = AioTopicPartition("aio", 0)
        assert await admin.delete_records({where: RecordsToDelete(before_offset=2)}) == {where: 2}
        deleted = await admin.delete_topics(["aio"])
        assert deleted.topic_error_codes[0][1] == 0
        assert "aio" not in await admin.list_topics()

    asyncio.run(asyncio.wait_for(run(), 60))
