"""Reads a topic with an isolation level, up to the end that the level has now."""

from __future__ import annotations

from confluent_kafka import Consumer, KafkaError, TopicPartition

__all__ = ["TIMEOUT_S", "read"]

TIMEOUT_S = 60.0


def read(bootstrap: str, topic: str, isolation: str = "read_committed", partitions: int = 1) -> list[bytes]:
    """All values of a topic, up to the end that the isolation level has now."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values, ends = [], 0
    try:
        while ends < partitions:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                ends += 1
            else:
                assert error is None
                values.append(message.value())
    finally:
        consumer.close()
    return values
