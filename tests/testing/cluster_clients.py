"""Clients of clusters under test."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import Cluster

#: longer than anything here takes, on any machine: what waits this long has failed
PATIENCE_S = 60.0


#: impatient enough for tests, and silent about brokers that are gone on purpose
CLIENT = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20}


def create(running: Cluster, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
    admin.create_topics([NewTopic(topic, 1, 3, config=config)])[topic].result(timeout=PATIENCE_S)
    running.wait_for_isr(topic)


def producer(running: Cluster, **config: Any) -> Producer:
    return Producer({"bootstrap.servers": running.bootstrap, "enable.idempotence": True, **CLIENT, **config})


def produce(running: Cluster, topic: str, *values: bytes, **config: Any) -> None:
    """Have every one of `values` acknowledged by all in-sync replicas."""
    failed = []

    def delivered(error: object, message: Message) -> None:
        if error is not None:
            failed.append(error)

    client = producer(running, **config)
    for value in values:
        client.produce(topic, value, on_delivery=delivered)
    assert client.flush(PATIENCE_S) == 0
    assert failed == []


def read(running: Cluster, topic: str, count: int, broker: int | None = None) -> list[bytes]:
    bootstrap = running.bootstrap if broker is None else running.address(broker)
    settings = {"group.id": "unused", "enable.auto.commit": False, **CLIENT}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values = [message.value() for message in consumer.consume(count, PATIENCE_S)]
    consumer.close()
    return values
