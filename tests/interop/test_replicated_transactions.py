"""Transactions on three brokers: a copy stays exactly once while the coordinator's broker is killed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.coordination.partitioning import partition_of
from penstock.testing.clusters import Cluster, cluster
from tests.interop.isolation import TIMEOUT_S, read

COUNT = 120
STATE_PARTITIONS = 4


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    with cluster(config={"transaction.state.log.num.partitions": str(STATE_PARTITIONS)}) as running:
        yield running


def new_producer(brokers: Cluster) -> Producer:
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": "copy", "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    return producer


def copy_batch(producer: Producer, consumer: Consumer, target: str) -> int:
    """Copy some messages in one transaction. Returns how many."""
    messages = consumer.consume(10, TIMEOUT_S)
    producer.begin_transaction()
    for message in messages:
        assert message.error() is None
        producer.produce(target, message.value())
    positions = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    return len(messages)


def new_consumer(brokers: Cluster, source: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": brokers.bootstrap,
            "group.id": "copy",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.subscribe([source])
    return consumer


def test_a_copy_survives_the_coordinator(brokers: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
    for future in admin.create_topics([NewTopic("source", 1, 3), NewTopic("target", 1, 3)]).values():
        future.result(TIMEOUT_S)
    plain = Producer({"bootstrap.servers": brokers.bootstrap})
    for number in range(COUNT):
        plain.produce("source", f"{number}")
    plain.flush(TIMEOUT_S)

    producer, consumer = new_producer(brokers), new_consumer(brokers, "source")
    copied = 0
    killed = False
    while copied < COUNT:
        try:
            copied += copy_batch(producer, consumer, "target")
        except KafkaException as e:
            # As an application does: abort, and start over from the committed offsets.
            if e.args[0].txn_requires_abort():
                producer.abort_transaction(TIMEOUT_S)
            else:
                producer = new_producer(brokers)
            consumer.close()
            consumer = new_consumer(brokers, "source")
            copied = len(read(brokers.bootstrap, "target"))
        if copied >= COUNT // 2 and not killed:
            killed = True
            coordinator = brokers.leader("__transaction_state", partition_of("copy", STATE_PARTITIONS))
            assert coordinator is not None
            brokers.kill(coordinator)
    consumer.close()
    assert read(brokers.bootstrap, "target") == [b"%d" % number for number in range(COUNT)]
