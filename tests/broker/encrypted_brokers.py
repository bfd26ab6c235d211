"""Brokers on encrypted directories: their configs, and texts that must not be readable there."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.testing import BrokerThread

VALUE = b"the value of a secret record"
#: texts that a broker stores in records, in the metadata log and snapshots, and in its own files
STORED = (VALUE, b"secret-user", b"secret-group", b"directory.id", b"secret-topic")
COUNT = 200


def config(keys: str | None) -> dict[str, object]:
    made: dict[str, object] = {
        "metadata.log.max.record.bytes.between.snapshots": "200",
        "log.index.interval.bytes": "100",
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }
    return made if keys is None else {**made, "penstock.encryption.keys": keys}


def fill(running: BrokerThread) -> None:
    """Records, a topic, a user and committed offsets."""
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    topic = NewTopic("secret-topic", 1, config={"index.interval.bytes": "100"})
    admin.create_topics([topic])["secret-topic"].result(60)
    user = UserScramCredentialUpsertion(
        "secret-user", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"password"
    )
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 10})
    for _ in range(COUNT):
        producer.produce("secret-topic", VALUE)
    assert producer.flush(60) == 0
    assert read(running, "secret-group") == [VALUE] * COUNT


def read(running: BrokerThread, group: str) -> list[bytes]:
    """All records, as a member of a group that commits."""
    consumer = Consumer(
        {"bootstrap.servers": running.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["secret-topic"])
    found: list[bytes] = []
    while len(found) < COUNT:
        found += [value for m in consumer.consume(COUNT, 30) if (value := m.value()) is not None]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def readable(directory: Path) -> set[bytes]:
    """The texts that are in a file of the directory in plain text."""
    contents = [path.read_bytes() for path in directory.rglob("*") if path.is_file()]
    return {text for text in STORED for content in contents if text in content}
