"""Backups of a running broker, over its wire protocol."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.archive.cuts import Marker, PartitionTransactions, resolve
from penstock.archive.sweeping import cut_manifest
from penstock.archive.verifying import verify_partition
from penstock.backup import taking
from penstock.backup.source import SourceFailed
from penstock.backup.taking import Backup
from penstock.model.ids import TopicPartition
from penstock.testing import broker
from tests.backup.clusters import commit_offsets, create, produce, store_in, take, transactional

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")


def test_a_cut_has_topics_groups_and_all_batches(tmp_path: Path) -> None:
    with broker() as running:
        create(running.bootstrap, "orders", 2, retention_ms="-1")
        produce(running.bootstrap, "orders", [b"%d" % n for n in range(100)])
        produce(running.bootstrap, "orders", [b"x"], partition=1)
        commit_offsets(running.bootstrap, "billing", "orders", 40)
        _, cut = take(running.bootstrap, tmp_path, segment_bytes=2000)
        produce(running.bootstrap, "orders", [b"later"])
        _, later = take(running.bootstrap, tmp_path)
    (topic,) = [each for each in cut.topics if each.topic == "orders"]
    assert topic.configs == {"retention.ms": "-1"}
    assert [(each.partition, each.end_offset) for each in topic.partitions] == [(0, 100), (1, 1)]
    (group,) = cut.groups
    assert (group.group, group.offsets[0].offset) == ("billing", 40)
    (newer,) = [each for each in later.topics if each.topic == "orders"]
    assert newer.partitions[0].end_offset == 101
    assert newer.partitions[1] == topic.partitions[1], "a partition without changes keeps its manifest"
    assert later.next_producer_id > 0

    async def verify() -> None:
        store = store_in(tmp_path)
        for each in (topic, newer):
            for partition in each.partitions:
                manifest = await cut_manifest(store, each, partition)
                assert (await verify_partition(store, manifest)).log_bytes > 0

    asyncio.run(verify())


def test_open_transactions_are_noted(tmp_path: Path) -> None:
    with broker() as running:
        create(running.bootstrap, "t")
        producer = transactional(running.bootstrap, "copy")
        producer.begin_transaction()
        producer.produce("t", b"1")
        producer.flush(30)
        _, cut = take(running.bootstrap, tmp_path, "t")
        producer.commit_transaction(30)
        _, later = take(running.bootstrap, tmp_path, "t")
    (partition,) = cut.topics[0].partitions
    assert (partition.end_offset, partition.last_stable_offset) == (1, 0)
    assert [each.committed for each in partition.open] == [False]
    (partition,) = later.topics[0].partitions
    assert (partition.end_offset, partition.last_stable_offset, partition.open) == (2, 2, ())


def test_a_log_start_that_has_moved(tmp_path: Path) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    with broker() as running:
        create(running.bootstrap, "t")
        produce(running.bootstrap, "t", [b"x"] * 10)
        take(running.bootstrap, tmp_path)
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for future in admin.delete_records([TopicPartition("t", 0, 7)]).values():
            future.result(30)
        _, cut = take(running.bootstrap, tmp_path)
    assert cut.topics[0].partitions[0].log_start_offset == 7


def test_an_unknown_topic_is_named(tmp_path: Path) -> None:
    with broker() as running, pytest.raises(SourceFailed, match="the cluster has no topic none"):
        take(running.bootstrap, tmp_path, "none")


def test_a_cluster_that_does_not_answer(tmp_path: Path) -> None:
    with pytest.raises(SourceFailed, match="no broker answers Metadata"):
        take("127.0.0.1:1", tmp_path)


def test_a_group_offset_behind_the_end_becomes_the_end(tmp_path: Path) -> None:
    """Clients may commit any offset. A restored group would skip the records that are written below it."""
    with broker() as running:
        create(running.bootstrap, "t")
        produce(running.bootstrap, "t", [b"x"] * 3)
        commit_offsets(running.bootstrap, "ahead", "t", 1000)
        _, cut = take(running.bootstrap, tmp_path)
    (group,) = cut.groups
    assert [each.offset for each in group.offsets] == [3]


class _Copies:
    """A partition of three: its transaction is committed while the backup looks at it."""

    def __init__(self, key: TopicPartition, views: list[PartitionTransactions], undecided: list[set[int]]):
        self.key = key
        self._views, self._undecided = views, undecided
        self.looks = 0

    def has_transactions(self) -> bool:
        return True

    def transactions(self) -> PartitionTransactions:
        return PartitionTransactions(10)

    async def peek(self, found: PartitionTransactions, target: int) -> set[int]:
        nth = min(self.looks, len(self._views) - 1)
        self.looks += 1
        found.markers, found.open, found.later = (
            self._views[nth].markers,
            self._views[nth].open,
            self._views[nth].later,
        )
        return self._undecided[min(nth, len(self._undecided) - 1)]


class _Ends:
    async def end_offsets(self, keys: object) -> dict[TopicPartition, int]:
        return dict.fromkeys((TopicPartition("t", 0), TopicPartition("t", 1)), 10)


def _look(copies: list[_Copies]) -> dict[TopicPartition, PartitionTransactions]:
    backup = Backup.__new__(Backup)
    backup._cluster = _Ends()  # type: ignore[assignment]
    return asyncio.run(backup._transactions(copies))  # type: ignore[arg-type]


def test_records_before_a_marker_are_looked_for_after_it() -> None:
    """One partition was read up to an end from before the marker that another one shows: read both again."""
    marker = Marker(12, 7, 0, True, 1)
    first = _Copies(TopicPartition("t", 0), [PartitionTransactions(10, {7: 0}, [marker])], [set()])
    ahead = PartitionTransactions(10, {}, [Marker(13, 7, 0, True, 1)], {7: 11})
    second = _Copies(TopicPartition("t", 1), [PartitionTransactions(10), ahead], [set()])
    found = resolve(_look([first, second]))
    assert not found[TopicPartition("t", 0)].committed, "the transaction has records behind the cut"


def test_a_cut_waits_for_markers_of_committed_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(taking, "_LOOK_PAUSE_S", 0.0)
    marker = Marker(12, 7, 0, True, 1)
    first = _Copies(TopicPartition("t", 0), [PartitionTransactions(10, {7: 0}, [marker])], [set()])
    second = _Copies(TopicPartition("t", 1), [PartitionTransactions(10, {7: 0})], [{7}])
    with pytest.raises(SourceFailed, match="has no marker in another partition yet"):
        _look([first, second])
