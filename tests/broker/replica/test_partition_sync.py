"""The syncs of one partition: when they are planned, and which acknowledgements wait for them."""

from __future__ import annotations

from typing import Any, cast

from penstock.broker.replica.partition_sync import PartitionSync
from penstock.storage.config import LogConfig
from tests.broker.memory_partitions import batch, partition_of


class PlannedSyncs:
    """A flusher that plans syncs and carries none out."""

    def __init__(self, acks_wait: bool) -> None:
        self.acks_wait = acks_wait
        self.planned: list[Any] = []

    def wrote(self, partition: Any) -> None:
        self.planned.append(partition)
        partition.unsynced = True

    def forget(self, partition: Any) -> None:
        self.planned.remove(partition)


class Written:
    """A log with records that were not synced yet."""

    def __init__(self, records: int, acks_wait: bool = False, **config: Any) -> None:
        partition = partition_of()
        partition.log.reconfigure(LogConfig(**config))
        self.log = partition.log
        self.log.appender.append(batch(records), 0)
        self.flusher = PlannedSyncs(acks_wait)
        self.advances: list[tuple[int, int]] = []
        self.sync = PartitionSync(
            self.log, cast(Any, self.flusher), lambda end, size: self.advances.append((end, size))
        )


def test_one_sync_is_planned_for_several_appends() -> None:
    written = Written(1)
    written.sync.appended()
    written.sync.appended()
    assert written.flusher.planned == [written.sync]


def test_a_changed_config_plans_another_sync() -> None:
    written = Written(1)
    written.sync.appended()
    written.sync.reconfigure(LogConfig(flush_ms=10))
    written.sync.appended()
    assert (len(written.flusher.planned), written.sync.flush_s) == (2, 0.01)


def test_acknowledgements_wait_once_flush_messages_records_are_unsynced() -> None:
    few, enough = Written(2, flush_messages=3), Written(3, flush_messages=3)
    few.sync.appended()
    enough.sync.appended()
    assert (few.sync.acks_wait, enough.sync.acks_wait) == (False, True)


def test_acknowledgements_stop_waiting_once_flush_messages_is_removed() -> None:
    written = Written(3, flush_messages=3)
    written.sync.appended()
    written.sync.reconfigure(LogConfig())
    written.sync.appended()
    assert not written.sync.acks_wait


def test_the_unsynced_part_counts_unless_acknowledgements_wait_for_the_disk() -> None:
    assert Written(3).sync.end_offset == 3
    waiting = Written(3, acks_wait=True).sync
    assert (waiting.end_offset, waiting.acks_wait) == (0, True)


def test_there_is_no_rest_to_wait_for_if_acknowledgements_do_not() -> None:
    written = Written(3)
    assert (written.sync.sync_rest(), written.flusher.planned) == (False, [])
    waiting = Written(3, acks_wait=True)
    assert waiting.sync.sync_rest() and waiting.sync.sync_rest()
    assert waiting.flusher.planned == [waiting.sync]


def test_only_readers_that_wait_for_the_disk_learn_of_a_sync() -> None:
    for acks_wait, advances in ((False, []), (True, [(3, 100)])):
        written = Written(3, acks_wait=acks_wait)
        written.sync.hidden_bytes = 250
        written.sync.flushed(3, 100)
        assert (written.advances, written.sync.hidden_bytes) == (advances, 150)


def test_a_removed_replica_is_not_synced() -> None:
    written = Written(1)
    written.sync.appended()
    written.sync.retire()
    assert (written.flusher.planned, written.sync.hosted) == ([], False)
