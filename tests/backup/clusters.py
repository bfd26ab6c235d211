"""Brokers with data to back up, and backups of them into a folder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.archive.cuts import Cut
from penstock.archive.objects import open_archive
from penstock.archive.sweeping import find_cut
from penstock.backup.restored_groups import chosen_targets
from penstock.backup.restoring import Restored
from penstock.backup.restoring_running import restore_to_cluster
from penstock.backup.source import Cluster
from penstock.backup.taking import Backup
from penstock.broker.base.system_ports import SystemClock, SystemRng
from penstock.objectstore.address import parse_address
from penstock.objectstore.object_store import LibraryStore, open_store

__all__ = [
    "commit_offsets",
    "committed",
    "consume",
    "create",
    "produce",
    "restore_running",
    "store_in",
    "take",
    "transactional",
]


def create(bootstrap: str, name: str, partitions: int = 1, replicas: int = 1, /, **config: str) -> None:
    topic = NewTopic(
        name, partitions, replicas, config={key.replace("_", "."): value for key, value in config.items()}
    )
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([topic]).values():
        future.result(30)


def produce(bootstrap: str, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "enable.idempotence": True})
    for n, value in enumerate(values):
        headers = [("n", str(n).encode())]
        producer.produce(
            topic,
            value,
            key=b"k%d" % n,
            partition=partition,
            timestamp=1_700_000_000_000 + n,
            headers=headers,
        )
    assert producer.flush(30) == 0


def transactional(bootstrap: str, name: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "transaction.timeout.ms": 300_000}
    producer = Producer(settings)
    producer.init_transactions(30)
    return producer


def consume(
    bootstrap: str, topic: str, partition: int = 0, isolation: str = "read_committed"
) -> list[tuple[int, int, bytes]]:
    """(offset, timestamp, value) of all records that a reader sees."""
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
    found: list[tuple[int, int, bytes]] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return found
            found.append((message.offset(), message.timestamp()[1], message.value()))
    finally:
        consumer.close()


def commit_offsets(bootstrap: str, group: str, topic: str, offset: int, partition: int = 0) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, partition, offset)], asynchronous=False)
    consumer.close()


def committed(bootstrap: str, group: str, topic: str, partition: int = 0) -> int:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    (found,) = consumer.committed([TopicPartition(topic, partition)], 30)
    consumer.close()
    return int(found.offset)


def store_in(folder: Path) -> LibraryStore:
    return open_store(parse_address(str(folder)), create=True)


def take(bootstrap: str, folder: Path, *topics: str, segment_bytes: int = 1 << 20) -> tuple[str, Cut]:
    """One cut, by a backup that starts anew."""

    async def run() -> tuple[str, Cut]:
        store = store_in(folder)
        root = await open_archive(store, SystemRng(), 0)
        cluster = Cluster(bootstrap, SystemRng())
        try:
            backup = Backup(cluster, store, root.id, SystemRng(), SystemClock(), topics, segment_bytes)
            return await backup.take()
        finally:
            cluster.close()

    return asyncio.run(run())


def restore_running(
    archive: Path, bootstrap: str, *topics: str, groups: Sequence[str] = (), replicas: int | None = None
) -> Restored:
    """Restore the newest cut of a folder into a running cluster."""

    async def run() -> Restored:
        store = store_in(archive)
        _, cut = await find_cut(store, None)
        client = Cluster(bootstrap, SystemRng())
        try:
            targets = chosen_targets(cut, topics)
            return await restore_to_cluster(store, cut, targets, client, groups, replication_factor=replicas)
        finally:
            client.close()

    return asyncio.run(run())
