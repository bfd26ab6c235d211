"""Topics of a cut, restored into running clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from penstock.archive.cuts import CutTopic
from penstock.archive.errors import ArchiveError, ArchiveRefused
from penstock.backup.restored_groups import Target
from penstock.testing import broker, cluster
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
from tests.waiting import eventually

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = pytest.mark.slow


def topics_of(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def test_topics_keep_offsets_in_a_cluster_that_has_others(tmp_path: Path) -> None:
    """Offsets, timestamps, values and transactions; groups go on; another topic and its groups stay."""
    archive = tmp_path / "archive"
    with broker() as running:
        address = running.bootstrap
        create(address, "orders", 2, retention_ms="-1")
        create(address, "late", 1, retention_ms="-1")
        for n in range(3):
            produce(address, "orders", [b"%d-%d" % (n, m) for m in range(100)])
            take(address, archive, segment_bytes=4000)
        produce(address, "late", [b"x"] * 50)
        delete_before(address, "late", 20)
        commit_offsets(address, "billing", "orders", 250)
        writer = transactional(address, "pairs")
        for outcome in ("commit", "abort", "open"):
            writer.begin_transaction()
            writer.produce("orders", outcome.encode(), partition=1)
            writer.flush(30)
            if outcome == "commit":
                writer.commit_transaction(30)
            elif outcome == "abort":
                writer.abort_transaction(30)
        take(address, archive)
        before = {
            (topic, n, isolation): consume(address, topic, n, isolation)
            for topic, n in (("orders", 0), ("orders", 1), ("late", 0))
            for isolation in ("read_committed", "read_uncommitted")
        }
        writer.abort_transaction(30)
    with broker() as running:
        address = running.bootstrap
        create(address, "mine", 1)
        # Its producer ids are those of the source: they must not meet in a restored topic.
        own = transactional(address, "pairs")
        own.begin_transaction()
        own.produce("mine", b"mine")
        own.commit_transaction(30)
        commit_offsets(address, "billing", "mine", 1)
        result = restore_running(archive, address, "orders=again", "late")
        assert (result.topics, result.partitions, result.groups) == (2, 3, 1)
        for (topic, n, isolation), records in before.items():
            name = "again" if topic == "orders" else topic
            assert consume(address, name, n, isolation) == records, (topic, n, isolation)
        assert before["late", 0, "read_committed"][0][0] == 20
        assert [committed(address, "billing", topic) for topic in ("again", "mine")] == [250, 1]
        produce(address, "again", [b"it goes on"])
        own.begin_transaction()
        own.produce("again", b"new", partition=1)
        own.commit_transaction(30)
        assert consume(address, "again")[-1][2] == b"it goes on"
        assert consume(address, "again", 1)[-1][2] == b"new"
        with pytest.raises(
            ArchiveRefused, match="topic again exists already in the cluster: restore it under"
        ):
            restore_running(archive, address, "orders=again")
        assert restore_running(archive, address, "orders=third", groups=["billing=copied"]).groups == 1
        assert committed(address, "copied", "third") == 250
        assert committed(address, "billing", "third") < 0


def delete_before(bootstrap: str, topic: str, offset: int) -> None:
    from confluent_kafka import TopicPartition

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cut with the topics a (three segments) and b, and the offset of one group in a."""
    folder = tmp_path_factory.mktemp("backup") / "archive"
    with broker() as running:
        create(running.bootstrap, "a", retention_ms="-1")
        create(running.bootstrap, "b", retention_ms="-1")
        produce(running.bootstrap, "b", [b"b"])
        for n in range(3):
            produce(running.bootstrap, "a", [b"%d-%d" % (n, m) for m in range(100)])
            take(running.bootstrap, folder, segment_bytes=500)
        commit_offsets(running.bootstrap, "billing", "a", 123)
        take(running.bootstrap, folder)
    return folder


def test_followers_replicate_restored_topics(archive: Path, tmp_path: Path) -> None:
    """The partition starts behind offset 0 on all replicas, and any of them may lead."""
    late = tmp_path / "late"
    with broker() as running:
        create(running.bootstrap, "late", retention_ms="-1")
        produce(running.bootstrap, "late", [b"%d" % n for n in range(40)])
        delete_before(running.bootstrap, "late", 40)
        produce(running.bootstrap, "late", [b"last"])
        take(running.bootstrap, late)
        delete_before(running.bootstrap, "late", 41)
        take(running.bootstrap, tmp_path / "empty")
    with cluster(brokers=3) as running:
        address = running.bootstrap
        assert restore_running(late, address, replicas=3).topics == 1
        assert restore_running(tmp_path / "empty", address, "late=empty", replicas=3).log_bytes == 0
        assert restore_running(archive, address, "a", replicas=3).partitions == 1
        before = consume(address, "a")
        for topic in ("late", "empty", "a"):
            running.wait_for_isr(topic, size=3)
        leader = running.leader("a")
        assert leader is not None
        running.kill(leader)
        for topic in ("late", "empty", "a"):
            running.wait_for_leader(topic, 0, other_than=leader)
        assert consume(address, "a") == before
        assert [record[0] for record in consume(address, "late")] == [40]
        assert consume(address, "empty") == []
        produce(address, "empty", [b"first"])
        assert [(offset, value) for offset, _, value in consume(address, "empty")] == [(41, b"first")]


def test_a_restore_is_refused_before_anything_is_written(archive: Path, tmp_path: Path) -> None:
    with broker() as running:
        address = running.bootstrap
        create(address, "b")
        for topics, groups, message in (
            ((), (), "topic b exists already in the cluster"),
            (("c",), (), "the cut has no topic c: it has a, b"),
            (("a=x", "b=x"), (), "the topics a and b cannot both be restored as x"),
            (("a", "a=x"), (), "topic a has two new names: a and x"),
            (("a=/",), (), "topic / cannot be created"),
            (("a",), ("nobody",), "the cut has no group nobody: it has billing"),
        ):
            with pytest.raises(ArchiveRefused, match=message):
                restore_running(archive, address, *topics, groups=groups)
        with member_of("billing", address), pytest.raises(ArchiveRefused, match="group billing has members"):
            restore_running(archive, address, "a")
        segment = sorted(archive.rglob("a/*/0/*.segment"))[-1]
        data = segment.read_bytes()
        segment.unlink()
        try:
            with pytest.raises(ArchiveError, match=r"\.segment is missing"):
                restore_running(archive, address, "a")
            assert topics_of(address) <= {"b", "__consumer_offsets"}
            segment.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
            with pytest.raises(ArchiveError, match="do not match the SHA-256"):
                restore_running(archive, address, "a")
            assert topics_of(address) <= {"b", "__consumer_offsets"}
        finally:
            segment.write_bytes(data)
        assert restore_running(archive, address, "a").groups == 1


@contextmanager
def member_of(group: str, bootstrap: str) -> Iterator[None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe(["b"])
    try:
        eventually(lambda: consumer.poll(0.1) is not None or bool(consumer.assignment()))
        yield
    finally:
        consumer.close()


def test_a_topic_takes_no_records_of_producers_while_it_is_restored(archive: Path) -> None:
    """It says so, and the next restore does after one that was killed."""
    with broker() as running:
        address = running.bootstrap
        create(address, "a", penstock_restoring="true")
        with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
            produce_one(address, "a")
        with pytest.raises(ArchiveRefused, match="it is left from a restore that was interrupted: delete it"):
            restore_running(archive, address, "a")


def produce_one(bootstrap: str, topic: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(30) == 0
    if errors[0] is not None:
        raise KafkaException(errors[0])


def test_topics_with_tiered_storage_are_restored_without_it() -> None:
    """The new cluster may have none, and all records are local."""
    configs = {"remote.storage.enable": "true", "retention.ms": "-1"}
    topic = CutTopic(topic="a", topic_id="", replication_factor=1, configs=configs, partitions=())
    assert Target(topic, "b").configs == {"retention.ms": "-1"}
