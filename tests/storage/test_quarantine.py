"""The quarantine: what is set aside, that a crash loses none of it, and when it may be deleted."""

from __future__ import annotations

import errno
import os
from random import Random

import pytest

from penstock.model.errors import StorageError
from penstock.model.ids import TopicId, format_topic_id
from penstock.ports import Files
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.memory import Directory, MemoryFiles
from penstock.storage.quarantine import Quarantine, QuarantineRefused
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.storage.logs import CLOCK, NOW_MS, Tokens, batch, flush, records

ID = TopicId(b"a" * 16)
DAY_MS = 24 * 60 * 60 * 1000


def opened(files: Files) -> DataDirectory:
    return DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens(), clock=CLOCK)


def with_records(files: Files, topic: str = "a", partitions: int = 2) -> DataDirectory:
    directory = opened(files)
    directory.create_partitions([StoredPartition(topic, index, ID) for index in range(partitions)])
    for index in range(partitions):
        log = directory.open_log(topic, index, LogConfig(), CLOCK)
        log.append(batch(3), 0)
        flush(log)
    return directory


def test_a_partition_is_set_aside_with_all_of_its_files_and_its_place_is_free() -> None:
    files = MemoryFiles()
    directory = with_records(files)
    names = files.listdir("/data/topics/a/partition-1")
    size = sum(files.size(f"/data/topics/a/partition-1/{name}") for name in names)

    entry = directory.quarantine_partition("a", 1, "a test")

    assert files.listdir(f"/data/quarantine/{entry.name}/data/partition-1") == names
    assert (entry.topic, entry.topic_id, entry.partitions) == ("a", format_topic_id(ID), [1])
    assert (entry.reason, entry.when_ms, entry.size) == ("a test", NOW_MS, size)
    assert opened(files).quarantine.entries() == [entry]
    assert directory.partitions() == [StoredPartition("a", 0, ID)]
    directory.create_partitions([StoredPartition("a", 1, ID)])
    assert directory.open_log("a", 1, LogConfig(), CLOCK).end_offset == 0
    assert directory.quarantine_partition("a", 1, "again").name != entry.name


def test_the_last_partition_takes_the_topics_folder_with_it() -> None:
    files = MemoryFiles()
    directory = with_records(files)
    entry = directory.quarantine_partitions("a", [0, 1], "a test")
    assert entry.partitions == [0, 1]
    assert files.listdir("/data/topics") == []


def test_a_start_keeps_the_quarantine() -> None:
    files = MemoryFiles()
    with_records(files).quarantine_partition("a", 0, "a test")
    assert [entry.partitions for entry in opened(files).quarantine.entries()] == [[0]]


def test_a_moved_back_partition_has_its_records() -> None:
    files = MemoryFiles()
    directory = with_records(files)
    entry = directory.quarantine_partitions("a", [0, 1], "a test")
    files.makedirs("/data/topics/a")
    quarantine = directory.quarantine
    quarantine.move_back(entry, [(0, "/data/topics/a/partition-0")])
    assert quarantine.held(quarantine.entry(entry.name)) == [1]
    quarantine.move_back(entry, [(1, "/data/topics/a/partition-1")])
    assert quarantine.entries() == []
    for index in (0, 1):
        assert len(records(opened(files).open_log("a", index, LogConfig(), CLOCK))) == 3


def test_a_power_loss_leaves_a_partition_in_its_place_or_in_the_quarantine() -> None:
    for crash in range(1, 40):
        disk = FaultyDisk(Random(crash), CLOCK)
        disk.makedirs("/data")
        disk.sync_dir("/")
        directory = with_records(disk)
        disk.crash_at = disk.changes + crash
        try:
            directory.quarantine_partitions("a", [0, 1], "a test")
        except PowerLoss:
            pass
        else:
            disk.power_off()
        disk.restart()
        directory = opened(disk)
        kept = [stored.partition for stored in directory.partitions()]
        aside = [p for e in directory.quarantine.entries() for p in directory.quarantine.held(e)]
        assert sorted(kept + aside) == [0, 1], crash
        for index in kept:
            assert len(records(directory.open_log("a", index, LogConfig(), CLOCK))) == 3


def test_a_disk_that_refuses_leaves_the_partition_in_its_place() -> None:
    class Stuck(MemoryFiles):
        def move(self, source: Directory, old: str, target: Directory, new: str) -> None:
            if old.startswith("partition-"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            super().move(source, old, target, new)

    files = Stuck()
    directory = with_records(files)
    with pytest.raises(StorageError, match="cannot set aside /data/topics/a/partition-0"):
        directory.quarantine_partition("a", 0, "a test")
    assert len(directory.partitions()) == 2


def test_an_unknown_entry_is_refused() -> None:
    with pytest.raises(QuarantineRefused, match="'x'"):
        Quarantine(MemoryFiles(), "/data").entry("x")


def test_the_longest_topic_name_can_be_set_aside() -> None:
    topic = "x" * 249
    entry = with_records(MemoryFiles(), topic).quarantine_partition(topic, 1, "a test")
    assert entry.topic == topic
    assert len(entry.name) < 255


def test_an_entry_expires_only_when_the_broker_has_run_as_long_as_the_wall_clock_says() -> None:
    files = MemoryFiles()
    directory = with_records(files)
    quarantine = directory.quarantine
    entry = directory.quarantine_partition("a", 0, "a test")
    # The wall clock jumps ahead by a month.
    assert quarantine.keep(1000, NOW_MS + 30 * DAY_MS, 7 * DAY_MS) == []
    # The broker has run for seven days, while the wall clock went back.
    assert quarantine.keep(7 * DAY_MS, NOW_MS - DAY_MS, 7 * DAY_MS) == []
    assert quarantine.keep(0, NOW_MS + 8 * DAY_MS, -1) == []
    (expired,) = quarantine.keep(0, NOW_MS + 8 * DAY_MS, 7 * DAY_MS)
    assert expired.name == entry.name
    quarantine.delete(expired.name)
    assert quarantine.entries() == []


def test_an_entry_that_a_crash_left_empty_expires_at_once() -> None:
    files = MemoryFiles()
    directory = with_records(files)
    entry = directory.quarantine_partition("a", 0, "a test")
    files.rename(f"/data/quarantine/{entry.name}/data/partition-0", "/data/topics/a/partition-0")
    assert [e.name for e in directory.quarantine.keep(0, NOW_MS, 7 * DAY_MS)] == [entry.name]


def test_other_files_in_the_quarantine_are_left_alone() -> None:
    files = MemoryFiles()
    directory = with_records(files)
    directory.quarantine_partition("a", 0, "a test")
    files.write_atomic("/data/quarantine/.DS_Store", b"?")
    files.makedirs("/data/quarantine/damaged")
    files.write_atomic("/data/quarantine/damaged/quarantine.json", b'{"name": 1}')
    assert [entry.topic for entry in directory.quarantine.entries()] == ["a"]
    assert directory.quarantine.keep(0, NOW_MS, 0)[0].topic == "a"
