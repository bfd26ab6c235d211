"""Writes the messages of a transaction that an external coordinator will decide."""

from __future__ import annotations

from confluent_kafka import Producer

__all__ = ["write"]


def write(bootstrap: str, name: str, topic: str, *values: str) -> Producer:
    """The messages of a transaction are acknowledged, and its producer has not ended it."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "log_level": 2})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(30) == 0
    return producer
