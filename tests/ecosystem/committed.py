"""Topics, and their committed records."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

__all__ = ["create", "read_committed"]

_TIMEOUT_S = 60.0


def create(bootstrap: str, brokers: int, *topics: NewTopic) -> None:
    """Create topics once all brokers have started."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    deadline = time.monotonic() + _TIMEOUT_S
    while len(admin.list_topics(timeout=_TIMEOUT_S).brokers) < brokers:
        assert time.monotonic() < deadline, "not all brokers have started"
    for future in admin.create_topics(list(topics), request_timeout=_TIMEOUT_S).values():
        future.result(_TIMEOUT_S)


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[Message]:
    """All committed records up to the last stable offset, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "committed",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[Message] = []
    ended: set[int] = set()
    deadline = time.monotonic() + _TIMEOUT_S
    try:
        while len(ended) < partitions:
            assert time.monotonic() < deadline, f"{topic} has no end"
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
    finally:
        consumer.close()
    return found
