"""What a topic holds, for tests."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition

__all__ = ["messages"]


def messages(bootstrap: str, topic: str) -> list[Any]:
    """All messages of a topic without further writers."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False}
        | {"enable.partition.eof": True, "auto.offset.reset": "earliest"}
    )
    partitions = consumer.list_topics(topic, 60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[Any] = []
    ends = 0
    while ends < len(partitions):
        message = consumer.poll(60)
        assert message is not None, f"{topic} does not answer"
        if message.error() is None:
            found.append(message)
        else:
            ends += 1
    consumer.close()
    return found
