"""A backup of Apache Kafka, restored into a running Penstock and read by Kafka's own tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lab.apache_kafka import tool
from penstock.archive.errors import ArchiveRefused
from penstock.testing import broker
from tests.backup.clusters import (
    commit_offsets,
    committed,
    consume,
    create,
    produce,
    restore_running,
    take,
    transactional,
)
from tests.backup.stores import WITH_S3
from tests.waiting import eventually

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not WITH_S3, reason="a minute with Apache Kafka: `make archive` runs it"),
]

#: the cleaner removes what it can, at once
_COMPACTED = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0.01",
    "segment_ms": "100",
    "delete_retention_ms": "0",
}


def test_a_backup_of_apache_kafka_is_restored_into_a_running_penstock(
    real_kafka: str, tmp_path: Path
) -> None:
    """Transactions, compaction and headers, with the same offsets; Kafka itself takes no offsets."""
    names = [f"{name}-{tmp_path.name}" for name in ("plain", "pairs", "compacted")]
    plain, pairs, compacted = names
    create(real_kafka, plain, 1, retention_ms="-1")
    create(real_kafka, pairs, 2, retention_ms="-1")
    create(real_kafka, compacted, 1, **_COMPACTED)
    produce(real_kafka, plain, [b"%d" % n for n in range(300)])
    commit_offsets(real_kafka, plain, plain, 123)

    def is_compacted() -> bool:
        keyed(real_kafka, compacted)
        return len(consume(real_kafka, compacted)) < consume(real_kafka, compacted)[-1][0]

    eventually(is_compacted, 90)
    writer = transactional(real_kafka, pairs)
    for outcome in ("commit", "abort", "open"):
        writer.begin_transaction()
        for partition in (0, 1):
            writer.produce(pairs, outcome.encode(), partition=partition, headers={"outcome": outcome})
        writer.flush(30)
        if outcome == "commit":
            writer.commit_transaction(30)
        elif outcome == "abort":
            writer.abort_transaction(30)
    partitions = ((plain, 0), (pairs, 0), (pairs, 1), (compacted, 0))

    def readable() -> dict[tuple[str, int, str], list[tuple[int, int, bytes]]]:
        return {
            (topic, n, isolation): consume(real_kafka, topic, n, isolation)
            for topic, n in partitions
            for isolation in ("read_committed", "read_uncommitted")
        }

    archives: list[Path] = []

    def is_taken_between_compactions() -> bool:
        archives.append(tmp_path / f"archive-{len(archives)}")
        before = readable()
        take(real_kafka, archives[-1], *names)
        return readable() == before

    eventually(is_taken_between_compactions, 120)
    archive, before = archives[-1], readable()
    details = {topic: keys_and_headers(real_kafka, topic) for topic in names}
    writer.abort_transaction(30)
    with broker() as running:
        address = running.bootstrap
        assert restore_running(archive, address).groups == 1
        for (topic, n, isolation), records in before.items():
            assert consume(address, topic, n, isolation) == records, (topic, n, isolation)
        assert {topic: keys_and_headers(address, topic) for topic in names} == details
        assert committed(address, plain, plain) == 123
        check_with_kafkas_tools(address, plain, len(before[plain, 0, "read_committed"]))
    with pytest.raises(ArchiveRefused, match="the cluster is no Penstock of this version"):
        restore_running(archive, real_kafka, f"{plain}={plain}-again")


def keyed(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(50):
        producer.produce(topic, b"%d" % n, key=b"key %d" % (n % 3), headers={"n": b"%d" % n})
    assert producer.flush(30) == 0


def keys_and_headers(bootstrap: str, topic: str) -> list[tuple[int, object, object]]:
    """Of the records of partition 0, as a reader of all records sees them."""
    found = []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "details", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found.append((message.offset(), message.key(), message.headers()))
    consumer.close()
    return found


def check_with_kafkas_tools(bootstrap: str, topic: str, records: int) -> None:
    ends = run("org.apache.kafka.tools.GetOffsetShell", "--bootstrap-server", bootstrap, "--topic", topic)
    assert ends.split() == [f"{topic}:0:{records}"]
    arguments = ("--bootstrap-server", bootstrap, "--topic", topic, "--from-beginning")
    read = run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *arguments,
        "--max-messages",
        str(records),
        "--timeout-ms",
        "60000",
    )
    assert read.split() == [str(n) for n in range(records)]
    groups = run(
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        "--bootstrap-server",
        bootstrap,
        "--describe",
        "--group",
        topic,
    )
    (row,) = [line.split() for line in groups.splitlines() if line.startswith(topic)]
    assert row[1:6] == [topic, "0", "123", str(records), str(records - 123)]


def run(main_class: str, *arguments: str) -> str:
    done = subprocess.run(
        [*tool(main_class), *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
