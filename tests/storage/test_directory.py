from __future__ import annotations

import errno
import json
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from penstock.model.errors import StorageError
from penstock.model.ids import NO_TOPIC_ID, TopicId, format_topic_id
from penstock.ports import File
from penstock.storage.checkpoint import format_checked, format_fields
from penstock.storage.config import LogConfig
from penstock.storage.directory import MANY_FILES, DataDirectory, DirectoryRefused, StoredPartition
from penstock.storage.flush import FlushPlan
from penstock.storage.log import Log
from penstock.storage.memory import Inode, MemoryFiles
from penstock.testing.disk import FaultyDisk
from tests.storage.directories import RNG, opened
from tests.storage.logs import CLOCK, batch, flush, records

ID_A, ID_B = TopicId(b"a" * 16), TopicId(b"b" * 16)
TEXT_A = format_topic_id(ID_A)
CONFIG = LogConfig(segment_bytes=200)


def test_partitions_are_listed_with_their_topic_ids() -> None:
    files = MemoryFiles()
    directory = opened(files)
    stored = [
        StoredPartition("a", 0, ID_A),
        StoredPartition("a", 12, ID_A),
        StoredPartition("b.x_y-z", 3, ID_B),
    ]
    directory.create_partitions(stored)
    assert sorted(opened(files).partitions()) == stored
    assert files.read("/data/topics/a/topic.metadata") == format_fields(
        f"version: 0\ntopic_id: {format_topic_id(ID_A)}\n".encode()
    )


def test_a_lost_topic_id_is_none_rather_than_a_guess() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A), StoredPartition("a", 1, ID_A)])
    lost = [StoredPartition("a", 0, NO_TOPIC_ID), StoredPartition("a", 1, NO_TOPIC_ID)]
    files.write_atomic("/data/topics/a/topic.metadata", b"version: 0\n")
    assert directory.partitions() == lost
    files.remove("/data/topics/a/topic.metadata")
    assert directory.partitions() == lost


def test_a_directory_keeps_its_ids_and_its_owner() -> None:
    files = MemoryFiles()
    first = opened(files, cluster_id=None)
    again = opened(files, cluster_id=None)
    assert (again.cluster_id, again.directory_id) == (first.cluster_id, first.directory_id)
    assert len(first.directory_id) == 22
    assert opened(files, cluster_id=first.cluster_id).directory_id == first.directory_id
    for wrong in ({"cluster_id": "other"}, {"cluster_id": None, "node_id": 2}):
        with pytest.raises(DirectoryRefused, match="belongs to node 1"):
            opened(files, **wrong)


@pytest.mark.parametrize(
    "meta", [b"{", b"[]", b"{}", b'{"version": 9, "cluster.id": "c", "node.id": 1, "directory.id": "d"}']
)
def test_a_directory_that_cannot_be_read_is_refused(meta: bytes) -> None:
    files = MemoryFiles()
    files.makedirs("/data")
    files.write_atomic("/data/meta.json", meta)
    with pytest.raises(DirectoryRefused):
        opened(files)


def test_a_flipped_bit_in_the_owner_of_a_directory_is_refused() -> None:
    files = MemoryFiles()
    opened(files).close()
    meta = files.read("/data/meta.json")
    flipped = meta.replace(b'"node.id": 1', b'"node.id": 3')  # one bit of the digit
    assert flipped != meta
    files.write_atomic("/data/meta.json", flipped)
    with pytest.raises(DirectoryRefused, match=r"/data/meta\.json is damaged .*checksum.*restore it"):
        opened(files, node_id=3)


@pytest.mark.parametrize("bit", range(8))
def test_no_flipped_bit_changes_the_owner_of_a_directory(bit: int) -> None:
    files = MemoryFiles()
    first = opened(files)
    first.close()
    meta = files.read("/data/meta.json")
    for position in range(len(meta)):
        flipped = bytearray(meta)
        flipped[position] ^= 1 << bit
        files.write_atomic("/data/meta.json", bytes(flipped))
        with suppress(DirectoryRefused):
            # A flip between fields, or in the name of the checksum, leaves the fields as they were.
            found = opened(files, cluster_id=None)
            found.close()
            assert (found.cluster_id, found.directory_id) == (first.cluster_id, first.directory_id)


def test_a_directory_without_a_checksum_of_its_owner_is_opened() -> None:
    files = MemoryFiles()
    first = opened(files)
    first.close()
    meta = json.loads(files.read("/data/meta.json"))
    del meta["checksum"]
    files.write_atomic("/data/meta.json", json.dumps(meta).encode())
    assert opened(files).directory_id == first.directory_id


@pytest.mark.parametrize(("appended", "seals"), [(False, 1), (True, 2)])
def test_a_log_with_records_is_sealed_once_unless_it_grows_after_that(
    monkeypatch: pytest.MonkeyPatch, appended: bool, seals: int
) -> None:
    sealed: list[Log] = []
    seal = Log.seal

    def counted(log: Log) -> FlushPlan:
        sealed.append(log)
        return seal(log)

    monkeypatch.setattr(Log, "seal", counted)
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A), StoredPartition("a", 1, ID_A)])
    logs = [directory.open_log("a", index, CONFIG, CLOCK) for index in range(2)]
    logs[0].append(batch(), 0)
    for log, plan in directory.seal():
        plan.sync()
        log.flushed(plan)
    if appended:
        logs[0].append(batch(), 0)
    directory.close()
    assert len(sealed) == seals
    again = opened(files)
    assert again.open_log("a", 0, CONFIG, CLOCK).end_offset == logs[0].end_offset
    assert not again.shutdown.unclean


def test_a_directory_in_use_is_refused() -> None:
    class Locked(MemoryFiles):
        def lock(self, path: str) -> File:
            raise BlockingIOError(errno.EWOULDBLOCK, "locked")

    with pytest.raises(DirectoryRefused, match="in use"):
        opened(Locked())


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(errno.ENOENT, "No such file", "/data"), "/data cannot be used: No such file"),
        (OSError(errno.EACCES, "Permission denied", "/data/lock"), "/data/lock: Permission denied"),
        (OSError("no room"), "/data cannot be used: no room"),
    ],
)
def test_a_directory_that_the_system_refuses_is_named_once(error: OSError, line: str) -> None:
    class Refusing(MemoryFiles):
        def lock(self, path: str) -> File:
            raise error

    with pytest.raises(DirectoryRefused) as refused:
        opened(Refusing())
    assert str(refused.value).endswith(line)
    assert str(refused.value).startswith("/data cannot be used: ")


def test_only_a_clean_shutdown_is_trusted_and_only_once() -> None:
    files = MemoryFiles()
    directory = opened(files)
    assert not directory.shutdown.clean
    directory.create_partitions([StoredPartition("a", 0, ID_A)])
    directory.open_log("a", 0, CONFIG, CLOCK).append(batch(), 0)
    directory.close()
    directory = opened(files)
    assert directory.shutdown.clean
    assert directory.open_log("a", 0, CONFIG, CLOCK).recovery.clean
    directory = opened(files)
    assert not directory.shutdown.clean
    assert not directory.open_log("a", 0, CONFIG, CLOCK).recovery.clean
    directory.close(clean=False)
    assert not opened(files).shutdown.clean


def test_a_log_that_was_opened_before_is_not_trusted() -> None:
    files = MemoryFiles()
    opened(files).close()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A)])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    log.append(batch(), 0)
    directory.close_log("a", 0, clean=False)
    assert not directory.open_log("a", 0, CONFIG, CLOCK).recovery.clean


def test_checkpoints_remember_recovery_points_and_log_starts() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A), StoredPartition("a", 1, ID_A)])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    for _ in range(10):
        log.append(batch(), 0)
    log.advance_high_watermark(10)
    flush(log)
    log.delete_records(4)
    log.append(batch(), 0)
    directory.open_log("a", 1, CONFIG, CLOCK)
    directory.checkpoint().write()
    assert files.read("/data/recovery-point-offset-checkpoint") == format_checked(
        [f"a 0 {TEXT_A} 10 4", f"a 1 {TEXT_A} 0 0"], 3
    )
    assert files.read("/data/log-start-offset-checkpoint") == format_checked(
        [f"a 0 {TEXT_A} 4", f"a 1 {TEXT_A} 0"], 3
    )
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.recovery_point, again.end_offset) == (4, 10, 11)


def test_unopened_partitions_stay_in_the_checkpoints() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A), StoredPartition("a", 1, ID_A)])
    for partition in (0, 1):
        log = directory.open_log("a", partition, CONFIG, CLOCK)
        log.append(batch(), 0)
        flush(log)
    directory.checkpoint().write()
    directory = opened(files)
    directory.open_log("a", 0, CONFIG, CLOCK)
    directory.checkpoint().write()
    assert f"a 1 {TEXT_A} 1 0\n".encode() in files.read("/data/recovery-point-offset-checkpoint")


def test_damaged_checkpoints_mean_that_everything_is_looked_at() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A)])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    log.append(batch(), 0)
    flush(log)
    directory.checkpoint().write()
    files.write_atomic("/data/recovery-point-offset-checkpoint", b"0\n1\na 0")
    assert opened(files).open_log("a", 0, CONFIG, CLOCK).recovery_point == 0


def test_the_recovery_point_is_lowered_on_the_disk_before_a_truncation() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A)])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    for _ in range(5):
        log.append(batch(), 0)
    flush(log)
    directory.checkpoint().write()
    log.truncate_to(2)
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert not again.recovery.corruption
    assert again.end_offset == 2


def test_a_removed_topic_makes_room_for_another_of_its_name() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A), StoredPartition("a", 1, ID_A)])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    log.append(batch(), 0)
    removal = directory.remove_topic("a", [0, 1])
    removal.set_aside()
    assert directory.partitions() == []
    directory.create_partitions([StoredPartition("a", 0, ID_B)])
    assert directory.open_log("a", 0, CONFIG, CLOCK).end_offset == 0
    assert files.listdir("/data/deleted")
    removal.delete()
    assert not files.listdir("/data/deleted")
    assert directory.partitions() == [StoredPartition("a", 0, ID_B)]


def test_a_removed_partition_leaves_its_siblings() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A), StoredPartition("a", 1, ID_A)])
    removal = directory.remove_partition("a", 0)
    removal.set_aside()
    assert directory.partitions() == [StoredPartition("a", 1, ID_A)]
    removal.delete()
    assert not files.listdir("/data/deleted")


def test_a_topic_that_could_not_be_removed_does_not_come_back_under_its_name() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A)])
    directory.open_log("a", 0, CONFIG, CLOCK).append(batch(), 0)
    directory.remove_topic("a", [0])
    directory.create_partitions([StoredPartition("a", 0, ID_B)])
    assert directory.partitions() == [StoredPartition("a", 0, ID_B)]
    assert directory.open_log("a", 0, CONFIG, CLOCK).end_offset == 0


def test_a_topic_without_folders_can_be_removed() -> None:
    files = MemoryFiles()
    directory = opened(files)
    before = files.listdir("/data"), files.listdir("/data/topics")
    removal = directory.remove_topic("a", [0])
    removal.set_aside()
    removal.delete()
    assert (files.listdir("/data"), files.listdir("/data/topics")) == before


def test_a_start_finishes_removals() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, ID_A)])
    directory.remove_topic("a", [0]).set_aside()
    assert files.listdir("/data/topics") == []
    opened(files)
    assert files.listdir("/data/deleted") == []


@pytest.mark.parametrize("partitions", [1, 1000])
def test_partitions_are_made_with_as_many_syncs_as_topics_need(partitions: int) -> None:
    class Counting(MemoryFiles):
        syncs = 0

        def sync(self, inode: Inode) -> None:
            self.syncs += 1
            super().sync(inode)

        def sync_dir(self, path: str) -> None:
            self.syncs += 1
            super().sync_dir(path)

    files = Counting()
    directory = opened(files)
    files.syncs = 0
    directory.create_partitions([StoredPartition("a", index, ID_A) for index in range(partitions)])
    # The topic's id, the name of that file and of the partitions beside it, the topic's name.
    assert files.syncs <= 3
    for index in range(partitions):
        directory.open_log("a", index, CONFIG, CLOCK)
    files.syncs = 0
    directory.close()
    # Partitions that were never used cost nothing: two checkpoints and the marker, with their names.
    assert files.syncs <= 6
    assert len(opened(files).partitions()) == partitions


def test_a_created_partition_survives_a_power_loss() -> None:
    for seed in range(30):
        disk = FaultyDisk(Random(seed))
        disk.makedirs("/data")
        disk.sync_dir("/")
        directory = opened(disk)
        directory.create_partitions([StoredPartition("a", 0, ID_A)])
        log = directory.open_log("a", 0, CONFIG, CLOCK)
        log.append(batch(3), 0)
        flush(log)
        disk.restart()
        directory = opened(disk)
        assert directory.partitions() == [StoredPartition("a", 0, ID_A)]
        assert len(records(directory.open_log("a", 0, CONFIG, CLOCK))) == 3


def test_an_offline_directory_takes_no_partitions() -> None:
    disk = FaultyDisk(Random(0))
    directory = opened(disk)
    directory.create_partitions([StoredPartition("a", 0, ID_A)])
    disk.sync_error = errno.EIO
    with pytest.raises(StorageError):
        directory.create_partitions([StoredPartition("b", 0, ID_B)])
    disk.sync_error = None
    assert directory.health.offline is not None
    for refused in (
        lambda: directory.create_partitions([StoredPartition("c", 0, ID_B)]),
        lambda: directory.open_log("a", 0, CONFIG, CLOCK),
        lambda: directory.remove_partition("a", 0).set_aside(),
        directory.seal,
        directory.close,
        directory.space,
    ):
        with pytest.raises(StorageError):
            refused()


def test_a_directory_knows_its_free_space() -> None:
    space = opened(MemoryFiles()).space()
    assert 0 < space.usable <= space.total


class Forgetful(Random):
    """Makes a disk keep nothing that was not synced."""

    def randint(self, a: int, b: int) -> int:
        return a


@pytest.mark.parametrize("path", ["/data", "/a/new/path"])
def test_a_new_directory_survives_a_power_loss_under_its_name(path: str) -> None:
    disk = FaultyDisk(Forgetful(0))
    disk.makedirs("/other")
    directory = DataDirectory.open(disk, path, cluster_id="c", node_id=1, rng=RNG)
    directory.create_partitions([StoredPartition("a", 0, ID_A)])
    disk.restart()
    again = DataDirectory.open(disk, path, cluster_id=None, node_id=1, rng=RNG)
    assert again.directory_id == directory.directory_id
    assert again.partitions() == [StoredPartition("a", 0, ID_A)]


def test_high_watermarks_of_replicated_logs_survive_a_crash_and_others_cost_no_file() -> None:
    files = MemoryFiles()
    directory = opened(files)
    directory.create_partitions([StoredPartition("t", index, ID_A) for index in (0, 1)])
    logs = [directory.open_log("t", index, CONFIG, CLOCK) for index in (0, 1)]
    assert directory.checkpoint_high_watermarks() is None
    directory.keep_high_watermark("t", 0)
    for log in logs:
        for _ in range(3):
            log.append(batch(), 0)
        log.advance_high_watermark(2)
    checkpoint = directory.checkpoint_high_watermarks()
    assert checkpoint is not None
    checkpoint.write()
    directory.close(clean=False)
    again = opened(files)
    found = [again.open_log("t", index, CONFIG, CLOCK).high_watermark for index in (0, 1)]
    assert found == [2, 0]
    again.close(clean=False)


class Volume(MemoryFiles):
    """One whose files can be synced together, which is counted."""

    def __init__(self, error: int | None = None) -> None:
        super().__init__()
        self.error = error
        self.file_error: int | None = None
        self.syncs = 0
        self.file_syncs = 0

    def sync(self, inode: Inode) -> None:
        self.file_syncs += 1
        if self.file_error is not None:
            raise OSError(self.file_error, "broken")

    def lock(self, path: str) -> File:
        return _Lock(self, super().lock(path))


class _Lock:
    def __init__(self, volume: Volume, file: File) -> None:
        self._volume = volume
        self._file = file

    def sync_volume(self) -> bool:
        self._volume.syncs += 1
        if self._volume.error is not None:
            raise OSError(self._volume.error, "broken")
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _plans(directory: DataDirectory, logs: int) -> list[FlushPlan]:
    directory.create_partitions([StoredPartition("a", index, ID_A) for index in range(logs)])
    opened_logs = [directory.open_log("a", index, CONFIG, CLOCK) for index in range(logs)]
    for log in opened_logs:
        # Their first batch of an epoch writes that down, too.
        log.append(batch(), 0)
        flush(log)
        log.append(batch(), 0)
    return [log.flush_plan() for log in opened_logs]


@pytest.mark.parametrize(("logs", "together"), [(MANY_FILES - 1, False), (MANY_FILES, True)])
def test_many_logs_are_synced_by_one_sync_of_their_volume(logs: int, together: bool) -> None:
    volume = Volume()
    directory = opened(volume)
    plans = _plans(directory, logs)
    volume.file_syncs = 0

    directory.sync(plans)

    assert (volume.syncs, volume.file_syncs == 0) == (int(together), together)


def test_a_volume_that_cannot_be_synced_as_one_is_synced_file_by_file() -> None:
    disk = FaultyDisk(Random(1))
    directory = opened(disk)
    directory.sync(_plans(directory, MANY_FILES))
    disk.restart()
    assert all(records(opened(disk).open_log("a", index, CONFIG, CLOCK)) for index in (0, MANY_FILES - 1))


def test_a_failed_sync_of_the_volume_has_each_file_say_whether_it_was_its_own() -> None:
    volume = Volume(errno.EIO)
    directory = opened(volume)
    plans = _plans(directory, MANY_FILES)
    volume.file_syncs = 0

    directory.sync(plans)

    assert volume.file_syncs == MANY_FILES
    assert directory.health.offline is None

    volume.file_error = errno.EIO
    with pytest.raises(StorageError, match="cannot sync /data"):
        directory.sync(plans)
    assert directory.health.offline is not None
