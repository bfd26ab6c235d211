"""Two clusters with a link between them, and what tests do with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.direct import DirectLine
from penstock.wire.apis.describe_log_dirs import MirroredLog
from tests.broker.links.commands import alter_link, look
from tests.waiting import eventually

__all__ = [
    "DEFAULTS",
    "commit",
    "committed",
    "create",
    "creates",
    "ends_at",
    "lines",
    "link",
    "log_of",
    "records",
    "reports",
    "send",
    "values",
]

#: configs of the brokers of both clusters
DEFAULTS = {"group.initial.rebalance.delay.ms": "0", "penstock.memory": "true"}


def create(bootstrap: str, name: str, partitions: int = 1, replicas: int = 1, **config: str) -> None:
    configs = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, replicas, config=configs)]).values():
        future.result(30)


@contextmanager
def lines(bootstrap: str) -> Iterator[DirectLine]:
    with DirectLine(bootstrap, 30) as line:
        yield line


def link(destination: str, source: str, name: str = "west", **config: str) -> None:
    """Create a link, or change its configs."""
    values: Mapping[str, str] = {
        "bootstrap.servers": source,
        "topics": "*",
        "interval.ms": "200",
        **{key.replace("_", "."): value for key, value in config.items()},
    }
    with lines(destination) as line:
        alter_link(line, name, values)


def log_of(destination: str, topic: str, partition: int = 0) -> MirroredLog | None:
    """What the leader says about the mirror of a partition."""
    with lines(destination) as line:
        for mirror in look(line).mirrors:
            if (mirror.topic, mirror.partition) == (topic, partition):
                return mirror.log
    return None


def reports(destination: str) -> list[str]:
    """Everything that brokers say is in the way of links."""
    with lines(destination) as line:
        found = [each for every in look(line).reports.values() for each in every]
    return [each.error for each in found] + [p.reason for each in found for p in each.problems]


def creates(destination: str, topic: str) -> None:
    """Return when the topic is there."""
    admin = AdminClient({"bootstrap.servers": destination})
    eventually(lambda: topic in admin.list_topics(timeout=30).topics)


def ends_at(destination: str, topic: str, offset: int, partition: int = 0) -> None:
    """Return when the mirror ends at an offset.

    AssertionError if it does not in time: records are missing, however slow the machine is.
    """
    creates(destination, topic)
    settings = {"group.id": "watcher", "isolation.level": "read_uncommitted"}
    consumer = Consumer({"bootstrap.servers": destination, **settings})
    try:
        eventually(lambda: _end(consumer, TopicPartition(topic, partition)) == offset)
    except TimeoutError:
        end = _end(consumer, TopicPartition(topic, partition))
        raise AssertionError(f"{topic}-{partition} ends at {end}, not at {offset}") from None
    finally:
        consumer.close()


def _end(consumer: Consumer, key: TopicPartition) -> int:
    """The high watermark; -1 while the broker does not have the new topic yet."""
    try:
        return int(consumer.get_watermark_offsets(key, timeout=30)[1])
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        return -1


def records(
    bootstrap: str, topic: str, partition: int = 0, isolation: str = "read_committed"
) -> list[tuple[int, int, bytes | None, bytes | None, object]]:
    """(offset, timestamp, key, value, headers) of all records that a reader sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[tuple[int, int, bytes | None, bytes | None, object]] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "no message in 30 s"
            if message.error():
                return found
            at = message.offset(), message.timestamp()[1]
            found.append((*at, message.key(), message.value(), message.headers()))
    finally:
        consumer.close()


def send(bootstrap: str, topic: str, values: range, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"})
    for n in values:
        producer.produce(topic, b"%d" % n, partition=partition)
    assert producer.flush(60) == 0


def values(bootstrap: str, topic: str, partition: int = 0) -> list[int]:
    return [int(each[3] or b"") for each in records(bootstrap, topic, partition)]


def commit(bootstrap: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        (found,) = consumer.committed([TopicPartition(topic, 0)], timeout=30)
        return int(found.offset)
    finally:
        consumer.close()
