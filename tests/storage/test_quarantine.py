"""The quarantine: what is set aside, that a crash loses none of it, and when it may be deleted."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from threading import Event, Thread, current_thread

import pytest

from penstock.model.errors import StorageError
from penstock.model.ids import TopicId, format_topic_id
from penstock.ports import Buffer, Files
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


def test_quarantine_takes_all_files_of_a_partition_and_frees_its_path() -> None:
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


def test_a_copy_is_a_readable_log_and_durable_once_it_is_made() -> None:
    """A power loss before that leaves an entry without all of it: the log is cut only afterwards."""
    data, finished = bytes(batch(3)), 0
    parts = [data[:20], data[20:]]
    for crash in range(1, 40):
        disk = FaultyDisk(Random(crash), CLOCK)
        disk.makedirs("/data")
        disk.sync_dir("/")
        directory = with_records(disk)
        disk.crash_at = disk.changes + crash
        entry = None
        try:
            entry = directory.quarantine.copy("a", ID, 1, f"{0:020d}.log", parts, len(data), "a test", NOW_MS)
        except PowerLoss:
            pass
        else:
            finished += 1
            disk.power_off()
        disk.restart()
        directory = opened(disk)
        assert len(directory.partitions()) == 2
        if entry is not None:
            assert directory.quarantine.entries() == [entry]
            assert directory.quarantine.held(entry) == [1]
            path = directory.quarantine.entry_path(entry.name)
            assert disk.read(f"{path}/data/partition-1/{0:020d}.log") == data, crash
    assert finished


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


def test_an_entry_does_not_expire_while_its_folders_are_moved() -> None:
    class Slow(MemoryFiles):
        """Lets another thread expire the quarantine before the first folder is moved."""

        def move(self, source: Directory, old: str, target: Directory, new: str) -> None:
            if new == "partition-0" and not expiry.is_alive():
                expiry.start()
                # With the lock the other thread waits for this one; without it, it ends here.
                expiry.join(0.2)
            super().move(source, old, target, new)

    files = Slow()
    directory = with_records(files)
    quarantine = directory.quarantine

    def expire() -> None:
        for entry in quarantine.keep(0, NOW_MS, 7 * DAY_MS):
            quarantine.expire(entry)

    expiry = Thread(target=expire)
    entry = directory.quarantine_partition("a", 0, "a test")
    expiry.join(60)
    assert quarantine.held(entry) == [0]
    assert [e.name for e in quarantine.entries()] == [entry.name]


def test_a_log_is_set_aside_while_an_expired_entry_is_deleted() -> None:
    class Large(MemoryFiles):
        """Another log is set aside while the entry's files are removed."""

        def rmtree(self, path: str) -> None:
            if "a-0.1" in path:
                aside.start()
                aside.join(30)
                assert not aside.is_alive()
            super().rmtree(path)

    files = Large()
    directory = with_records(files)
    quarantine = directory.quarantine
    aside = Thread(target=lambda: directory.quarantine_partition("a", 1, "another one"), daemon=True)
    directory.quarantine_partition("a", 0, "a test")
    (expired,) = quarantine.keep(8 * DAY_MS, NOW_MS + 8 * DAY_MS, 7 * DAY_MS)
    assert quarantine.expire(expired)
    (entry,) = quarantine.entries()
    assert (entry.name, quarantine.size) == ("a-1.1", entry.size)
    assert files.listdir("/data/quarantine") == ["a-1.1"] and files.listdir("/data/deleted") == []


def test_a_start_ends_the_deletion_of_an_expired_entry() -> None:
    class Failing(MemoryFiles):
        is_failing = True

        def rmtree(self, path: str) -> None:
            if self.is_failing and "a-0.1" in path:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().rmtree(path)

    files = Failing()
    directory = with_records(files)
    for _ in range(2):
        directory.quarantine_partition("a", 0, "a test")
        (expired,) = directory.quarantine.keep(8 * DAY_MS, NOW_MS + 8 * DAY_MS, 7 * DAY_MS)
        with pytest.raises(OSError, match="Input/output"):
            directory.quarantine.expire(expired)
        directory.create_partitions([StoredPartition("a", 0, ID)])
    assert files.listdir("/data/deleted") == ["a-0.1~1", "a-0.1~2"]
    files.is_failing = False
    assert opened(files).quarantine.entries() == []
    assert files.listdir("/data/deleted") == []


def test_a_log_is_set_aside_while_the_time_of_entries_is_written() -> None:
    written: list[bool] = []

    class SlowSync(MemoryFiles):
        def write_atomic(self, path: str, data: Buffer) -> None:
            if is_kept and "partition-" not in path and current_thread() is not aside:
                if not written:
                    aside.start()
                    waits.wait(30)
                aside.join(0.02)
                written.append(aside.is_alive())
            super().write_atomic(path, data)

    def set_aside() -> None:
        waits.set()
        directory.quarantine_partition("a", 20, "another one")

    waits, is_kept = Event(), False
    aside = Thread(target=set_aside)
    directory = with_records(SlowSync(), partitions=21)
    for partition in range(20):
        directory.quarantine_partition("a", partition, "a test")
    is_kept = True
    directory.quarantine.keep(0, NOW_MS, 7 * DAY_MS)
    aside.join(30)
    assert len(written) == 20
    assert written[0] and not written[-1], "not after the last entry"
    assert directory.quarantine.size == sum(entry.size for entry in directory.quarantine.entries())


def test_a_log_that_takes_the_name_of_a_deleted_entry_keeps_its_own_time() -> None:
    """A command deletes an entry while the broker adds time to it."""

    class Racing(MemoryFiles):
        def listdir(self, path: str) -> list[str]:
            names = super().listdir(path)
            if is_kept and path == "/data/quarantine/a-1.1/data":
                # The entry before this one has been read.
                is_kept.clear()
                super().rmtree("/data/quarantine/a-0.1")
                super().makedirs("/data/quarantine/a-0.1/data")
                super().write_atomic("/data/quarantine/a-0.1/quarantine.json", later)
            return names

    is_kept: list[bool] = []
    files = Racing()
    directory = with_records(files)
    first = directory.quarantine_partition("a", 0, "a test")
    directory.quarantine_partition("a", 1, "a test")
    content = json.loads(files.read("/data/quarantine/a-0.1/quarantine.json"))
    del content["crc32c"]
    later = json.dumps({**content, "when_ms": NOW_MS + DAY_MS}).encode()
    is_kept.append(True)
    directory.quarantine.keep(1000, NOW_MS, 7 * DAY_MS)
    (other,) = [entry for entry in directory.quarantine.entries() if entry.name == first.name]
    assert (other.when_ms, other.kept_ms) == (NOW_MS + DAY_MS, 0)


def test_an_entry_that_took_the_name_of_an_expired_one_stays() -> None:
    directory = with_records(MemoryFiles())
    quarantine = directory.quarantine
    directory.quarantine_partition("a", 0, "a test")
    (expired,) = quarantine.keep(8 * DAY_MS, NOW_MS + 8 * DAY_MS, 7 * DAY_MS)
    quarantine.delete(expired.name)
    assert not quarantine.expire(expired)
    directory.create_partitions([StoredPartition("a", 0, ID)])
    entry = directory.quarantine_partition("a", 0, "another one")
    assert entry.name == expired.name
    assert not quarantine.expire(expired)
    assert quarantine.held(entry) == [0]


@pytest.mark.parametrize("has_checksum", [True, False])
def test_an_entry_whose_file_is_damaged_does_not_expire(has_checksum: bool) -> None:
    files = MemoryFiles()
    directory = with_records(files)
    quarantine = directory.quarantine
    entry = directory.quarantine_partition("a", 0, "a test")
    path = f"/data/quarantine/{entry.name}/quarantine.json"
    content = json.loads(files.read(path))
    content["partitions"] = [1]
    if not has_checksum:
        del content["crc32c"]
    files.write_atomic(path, json.dumps(content).encode())
    assert quarantine.keep(8 * DAY_MS, NOW_MS + 8 * DAY_MS, 7 * DAY_MS) == []
    assert quarantine.damaged == [entry.name]
    assert [e.name for e in quarantine.entries()] == ([] if has_checksum else [entry.name])
    # A restore that finds none of the listed folders deletes nothing either.
    quarantine.move_back(replace(entry, partitions=[1]), [])
    assert quarantine.held(entry) == [0]


def test_a_file_of_a_release_without_checksums_gets_one() -> None:
    files = MemoryFiles()
    directory = with_records(files)
    quarantine = directory.quarantine
    entry = directory.quarantine_partition("a", 0, "a test")
    path = f"/data/quarantine/{entry.name}/quarantine.json"
    content = json.loads(files.read(path))
    checksum = content.pop("crc32c")
    files.write_atomic(path, json.dumps(content).encode())
    assert quarantine.entries() == [entry]
    assert quarantine.keep(0, NOW_MS, 7 * DAY_MS) == [] and quarantine.damaged == []
    assert json.loads(files.read(path))["crc32c"] == checksum


def test_an_entry_whose_data_cannot_be_read_does_not_expire() -> None:
    class Unreadable(MemoryFiles):
        def listdir(self, path: str) -> list[str]:
            if path.endswith("/data/quarantine/a-0.1/data"):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().listdir(path)

    directory = with_records(Unreadable())
    entry = directory.quarantine_partition("a", 0, "a test")
    assert directory.quarantine.keep(8 * DAY_MS, NOW_MS + 8 * DAY_MS, 7 * DAY_MS) == []
    assert directory.quarantine.damaged == [entry.name]


def test_a_copy_that_fails_leaves_no_entry() -> None:
    """A log that cannot be copied is tried again: each try would take the space of a copy."""
    disk = FaultyDisk(Random(1), CLOCK)
    disk.makedirs("/data")
    directory = with_records(disk)

    def parts() -> Iterator[bytes]:
        yield b"a part"
        raise OSError(28, "No space left on device")

    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            directory.quarantine.copy("a", ID, 1, f"{0:020d}.log", parts(), 1000, "a test", NOW_MS)
    assert directory.quarantine.entries() == []
    assert directory.quarantine.size == 0
