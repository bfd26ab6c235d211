"""Logs are opened as the manifest of the last clean shutdown describes them, or recovered."""

from __future__ import annotations

from penstock.broker.base.system_ports import SystemClock
from penstock.model.ids import METADATA_TOPIC, TopicId, TopicPartition
from penstock.records.record import Record, build_batch
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.manifest import NOT_LISTED
from penstock.storage.memory import MemoryFiles
from tests.storage.directories import opened

CLOCK = SystemClock()
KEY = TopicPartition("t", 0)


def closed_cleanly(files: MemoryFiles, topic: str = KEY.topic) -> None:
    """Two batches in the log of one partition, and a clean shutdown."""
    directory = opened(files)
    directory.create_partitions([StoredPartition(topic, 0, TopicId(b"\1" * 16))])
    log = directory.open_log(topic, 0, LogConfig(), CLOCK)
    for _ in range(2):
        log.append(memoryview(bytearray(build_batch([Record(0, 1, None, b"v")]))), 0)
    log.advance_high_watermark(2)
    directory.close()


def remove_last_batch(files: MemoryFiles, directory: DataDirectory, topic: str = KEY.topic) -> None:
    file = files.open(f"{directory.partition_path(topic, 0)}/{0:020d}.log")
    file.truncate(file.size() // 2)
    file.close()


def test_a_log_that_matches_the_manifest_is_trusted() -> None:
    files = MemoryFiles()
    closed_cleanly(files)
    directory = opened(files)
    log = directory.load_log(*KEY, LogConfig(), CLOCK)
    assert (log.recovery.clean, log.end_offset, log.high_watermark) == (True, 2, 2)
    assert directory.shutdown.unclean == {}


def test_a_log_that_differs_from_the_manifest_is_recovered() -> None:
    files = MemoryFiles()
    closed_cleanly(files)
    directory = opened(files)
    remove_last_batch(files, directory)
    log = directory.load_log(*KEY, LogConfig(), CLOCK)
    assert (log.recovery.clean, log.end_offset) == (False, 2)
    assert [damage.first_offset for damage in log.recovery.corruption] == [1]
    assert "bytes instead of" in directory.shutdown.unclean[KEY]


def test_the_metadata_log_is_not_recovered_because_the_quorum_has_its_records() -> None:
    files = MemoryFiles()
    closed_cleanly(files, METADATA_TOPIC)
    directory = opened(files)
    remove_last_batch(files, directory, METADATA_TOPIC)
    log = directory.load_log(METADATA_TOPIC, 0, LogConfig(), CLOCK)
    assert (log.recovery.clean, log.end_offset) == (True, 1)
    assert TopicPartition(METADATA_TOPIC, 0) in directory.shutdown.unclean


def test_a_log_with_records_that_the_manifest_does_not_list_is_unclean() -> None:
    files = MemoryFiles()
    closed_cleanly(files)
    directory = opened(files)
    directory.shutdown.forget([KEY])
    directory.load_log(*KEY, LogConfig(), CLOCK)
    assert directory.shutdown.unclean == {KEY: NOT_LISTED}


def test_the_manifest_counts_only_for_the_first_opening() -> None:
    files = MemoryFiles()
    closed_cleanly(files)
    directory = opened(files)
    directory.open_log(*KEY, LogConfig(), CLOCK)
    directory.close_log(*KEY, clean=False)
    log = directory.open_log(*KEY, LogConfig(), CLOCK)
    assert (log.recovery.clean, log.end_offset) == (False, 2)
    assert directory.shutdown.unclean == {}
