"""Crashes at every step of a move between two data directories on two disks."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from penstock.model.errors import StorageError
from penstock.model.ids import TopicId, TopicPartition
from penstock.records.record import Record
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory
from penstock.storage.folders import StoredPartition
from penstock.storage.future_copy import CopyFailed, FutureCopy
from penstock.storage.log import Log
from penstock.storage.moved_folders import MOVED, MoveUnfinished, future_folders, move, settle
from penstock.storage.ownership import DirectoryRefused
from penstock.storage.scan import CorruptLog
from penstock.testing.disk import FaultyDisk, PowerLoss
from tests.broker.disks import Volumes
from tests.storage.directories import RNG
from tests.storage.logs import CLOCK, NOW_MS, batch, idempotent, records

TOPIC_ID: Final = TopicId(bytes(range(16)))
STORED: Final = StoredPartition("t", 0, TOPIC_ID)
KEY: Final = TopicPartition("t", 0)
CONFIG: Final = replace(LogConfig(), segment_bytes=300)


class Machine:
    """A log in a data directory on one disk, and a data directory on another."""

    def __init__(self, seed: int | None = 0) -> None:
        self.disks = [FaultyDisk(Random(seed), CLOCK), FaultyDisk(Random(seed), CLOCK)]
        a, b = self.disks
        a.on_power_loss, b.on_power_loss = b.power_off, a.power_off
        self.files = Volumes(a=a, b=b)
        self.open()
        self.source.create_partitions([STORED])
        log = self.opened(self.source)
        for sequence in range(6):
            log.append(idempotent(sequence), 3)
        log.append(batch(3), 4)
        flush(log)
        log.advance_high_watermark(8)
        log.delete_records(1)
        self.source.checkpoint().write()
        self.records = records(log)
        self.log = log
        for disk in self.disks:
            disk.settle()

    def open(self) -> None:
        a, b = (
            DataDirectory.open(self.files, path, cluster_id="c", node_id=1, rng=RNG, clock=CLOCK)
            for path in ("/a", "/b")
        )
        self.source, self.target = a, b

    def opened(self, directory: DataDirectory) -> Log:
        return directory.open_log("t", 0, CONFIG, CLOCK)

    def move(self) -> None:
        """What `DirectoryMoves` does, without a loop."""
        log, source, target = self.log, self.source, self.target
        copy = FutureCopy(self.files, log.path, target.path, STORED)
        copy.begin()
        list(copy.copy(NOW_MS, 100, log.segments.active.base_offset, False))
        plan = log.seal()
        plan.sync()
        log.flushed(plan)
        source.close_log("t", 0, clean=False)
        list(copy.copy(NOW_MS, 100, None, True))
        copy.check_complete()
        target.take_over(STORED, log)
        checkpoint = target.checkpoint()
        checkpoint.write()
        target.checkpointed(checkpoint)
        removal = source.partition_removal("t", 0)
        move(self.files, STORED, source, target, removal)
        source.let_go("t", 0)
        removal.delete()

    def restart(self, power_loss: bool) -> None:
        for disk in self.disks:
            disk.restart(power_loss=power_loss)
        self.open()

    def believed(self) -> DataDirectory:
        """The only directory that has the partition in its place."""
        (found,) = [each for each in (self.source, self.target) if each.holds("t", 0)]
        return found

    def check(self) -> DataDirectory:
        """Exactly one folder is the log, and has all records; no mark is left."""
        found = self.believed()
        log = self.opened(found)
        assert records(log) == self.records
        assert (log.log_start_offset, log.end_offset) == (1, 9)
        assert log.explained_start == 1
        assert log.recovery.corruption == []
        assert log.end_offset_for_epoch(3) == (3, 6)
        assert not found.shutdown.unclean
        for path in ("/a", "/b"):
            folder = f"{path}/{MOVED}"
            assert not self.files.is_dir(folder) or self.files.listdir(folder) == []
        return found


def flush(log: Log) -> None:
    plan = log.flush_plan()
    plan.sync()
    log.flushed(plan)


def changes_of_a_move() -> tuple[int, int]:
    """The changes on each disk."""
    machine = Machine()
    before = [disk.changes for disk in machine.disks]
    machine.move()
    a, b = (disk.changes - first for disk, first in zip(machine.disks, before, strict=True))
    return a, b


def points() -> list[tuple[int, int]]:
    return [(disk, point) for disk, last in enumerate(changes_of_a_move()) for point in range(1, last + 1)]


def crashed(machine: Machine, disk: int, point: int, power_loss: bool) -> Machine:
    """The machine goes down at a change of a disk in a move, and starts again."""
    machine.disks[disk].crash_at = machine.disks[disk].changes + point
    with pytest.raises(PowerLoss):
        machine.move()
    machine.restart(power_loss)
    return machine


def test_a_move_takes_everything_along() -> None:
    machine = Machine()
    machine.move()
    assert machine.check() is machine.target
    log = machine.opened(machine.target)
    assert log.recovery_point == log.end_offset == 9
    assert log.high_watermark == 8
    assert log.append(idempotent(5), 4).duplicate
    assert machine.files.listdir("/a/deleted") == []
    assert future_folders(machine.files, machine.target) == []


def test_a_tiered_log_starts_where_it_did() -> None:
    machine = Machine()
    machine.log.advance_local_start(4)
    machine.move()
    log = machine.opened(machine.target)
    assert (log.log_start_offset, log.local_log_start_offset, log.end_offset) == (1, 4, 9)


def test_a_log_whose_start_has_no_reason_has_none_behind_a_move() -> None:
    machine = Machine()
    machine.log.explained_start = 0
    machine.move()
    log = machine.opened(machine.target)
    assert (log.explained_start, log.log_start_offset) == (0, 1)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_crash_at_any_step_leaves_one_log_to_believe(seed: int | None) -> None:
    """`seed`: the power goes, too. The start crashes as well, at a few of its changes."""
    outcomes = set()
    for disk, point in points():
        for again in (None, 2, 5):
            machine = crashed(Machine(seed), disk, point, seed is not None)
            if again is not None:
                machine.disks[disk].crash_at = machine.disks[disk].changes + again
                with suppress(PowerLoss):
                    settle(machine.files, [machine.source, machine.target])
                machine.restart(seed is not None)
            settle(machine.files, [machine.source, machine.target])
            outcomes.add(machine.check().path)
            assert settle(machine.files, [machine.source, machine.target]) == []
    assert outcomes == {"/a", "/b"}


def test_the_move_is_decided_at_one_moment() -> None:
    """Before the mark the old folder is the log, and the copy a future replica; behind it, the new one is."""
    is_new = []
    for point in range(1, changes_of_a_move()[0] + 1):
        machine = crashed(Machine(), 0, point, False)
        settle(machine.files, [machine.source, machine.target])
        is_new.append(machine.check() is machine.target)
        futures = future_folders(machine.files, machine.target)
        assert len(futures) == (not is_new[-1])
        if is_new[-1]:
            # What a start finds is not deleted, only set aside.
            entries = machine.source.quarantine.entries()
            assert [each.reason for each in entries] in (
                [],
                ["it was moved to /b/topics/t/partition-0"],
            )
    decided = is_new.index(True)
    assert is_new == [False] * decided + [True] * (len(is_new) - decided)
    assert 3 < decided < len(is_new) - 1


class _Mutant:
    """A disk of a machine on which one step of the move is not durable, or comes too early."""

    def __init__(self, machine: Machine, number: int, folder: str) -> None:
        self._disk = machine.disks[number]
        self._folders = folder.split()
        self._sync, self._sync_dir = self._disk.sync, self._disk.sync_dir

    def forget_names(self) -> None:
        def sync_dir(path: str) -> None:
            if not any(folder in path for folder in self._folders):
                self._sync_dir(path)

        self._disk.sync_dir = sync_dir  # type: ignore[method-assign]

    def forget_content(self) -> None:
        self._disk.sync = lambda inode: None  # type: ignore[method-assign]


def survives(number: int, folder: str, mutate: str) -> bool:
    """Whether all crashes with power loss leave the log whole if one disk forgets what it should sync."""
    for seed in range(4):
        for disk, point in points():
            machine = Machine(seed)
            getattr(_Mutant(machine, number, folder), mutate)()
            machine.disks[disk].crash_at = machine.disks[disk].changes + point
            with suppress(PowerLoss):
                machine.move()
            machine.restart(power_loss=True)
            try:
                settle(machine.files, [machine.source, machine.target])
                machine.check()
            except (AssertionError, ValueError, CorruptLog, DirectoryRefused):
                return False
    return True


@pytest.mark.parametrize(
    ("number", "folder", "mutate"),
    [
        pytest.param(1, "", "forget_content", id="the copy is not synced"),
        pytest.param(1, "/future", "forget_names", id="the names in the copy are not synced"),
        pytest.param(1, "/topics", "forget_names", id="the new place is not synced"),
        pytest.param(0, "/moved", "forget_names", id="the mark is not synced"),
        pytest.param(0, "/topics /deleted", "forget_names", id="the end of the old folder is not synced"),
    ],
)
def test_each_sync_is_needed(number: int, folder: str, mutate: str) -> None:
    assert not survives(number, folder, mutate)


def test_a_move_survives_power_loss_at_any_step() -> None:
    assert survives(0, "/no such folder", "forget_names")


def test_a_directory_that_has_lost_the_log_leaves_the_old_one_which_is_unclean() -> None:
    machine = Machine()
    last = changes_of_a_move()[0]
    for point in range(last, 0, -1):
        crashed(machine, 0, point, False)
        if machine.source.holds("t", 0) and machine.files.listdir(f"/a/{MOVED}"):
            break
        machine = Machine()
    if machine.target.holds("t", 0):
        machine.files.rmtree("/b/topics/t")
    else:
        machine.files.rmtree("/b/future")
    (done,) = settle(machine.files, [machine.source, machine.target])
    assert (done.path, done.entry) == ("/a/topics/t/partition-0", None)
    assert machine.source.shutdown.unclean == {KEY: "it was moved to /b, which has lost it"}
    assert [record.offset for record in _of(machine)] == [record.offset for record in machine.records]


def _of(machine: Machine) -> list[Record]:
    return records(machine.opened(machine.believed()))


def marked() -> Machine:
    """A machine that has stopped right behind the mark."""
    for point in range(1, changes_of_a_move()[0] + 1):
        machine = crashed(Machine(), 0, point, False)
        if machine.files.is_dir(f"/a/{MOVED}") and any(
            not name.endswith(".tmp") for name in machine.files.listdir(f"/a/{MOVED}")
        ):
            return machine
    raise AssertionError("no crash leaves a mark")


def test_no_start_without_the_new_directory() -> None:
    machine = marked()
    with pytest.raises(DirectoryRefused, match=r"/a/topics/t/partition-0 was moved to .* which is missing"):
        settle(machine.files, [machine.source])
    settle(machine.files, [machine.source, machine.target])
    assert machine.check() is machine.target


def test_no_start_with_a_mark_that_cannot_be_read() -> None:
    machine = marked()
    (name,) = machine.files.listdir(f"/a/{MOVED}")
    machine.disks[0].flip_bit(f"/a/{MOVED}/{name}", 20, 3)
    with pytest.raises(DirectoryRefused, match="remove it if only one of them has the partition"):
        settle(machine.files, [machine.source, machine.target])


def test_a_place_that_is_taken_keeps_the_old_log() -> None:
    machine = Machine()
    machine.files.makedirs("/b/topics/t/partition-0")
    with pytest.raises(CopyFailed, match="exists already"):
        machine.move()
    assert settle(machine.files, [machine.source, machine.target]) == []
    assert _is_whole(machine)


def _is_whole(machine: Machine) -> bool:
    return records(machine.opened(machine.source)) == machine.records


def test_a_mark_that_cannot_be_written_keeps_the_old_log() -> None:
    machine = Machine()
    disk, write_atomic = machine.disks[0], machine.disks[0].write_atomic

    def refused(path: str, data: bytes) -> None:
        write_atomic(path, data)
        if MOVED in path:
            raise OSError(28, "No space left on device", path)

    disk.write_atomic = refused  # type: ignore[method-assign, assignment]
    with pytest.raises(CopyFailed, match="cannot write /a/moved/"):
        machine.move()
    assert machine.files.listdir(f"/a/{MOVED}") == []
    assert _is_whole(machine)


def test_a_disk_that_fails_behind_the_mark_leaves_the_move_to_the_next_start() -> None:
    machine = Machine()
    disk, rename = machine.disks[1], machine.disks[1].rename

    def refused(old: str, new: str) -> None:
        if old.endswith("/partition-0"):
            raise OSError(5, "Input/output error", old)
        rename(old, new)

    disk.rename = refused  # type: ignore[method-assign]
    with pytest.raises(MoveUnfinished, match="is not finished"):
        machine.move()
    with suppress(StorageError):
        machine.source.close(clean=False)
    disk.rename = rename  # type: ignore[method-assign]
    machine.restart(False)
    (done,) = settle(machine.files, [machine.source, machine.target])
    assert done.path == "/b/topics/t/partition-0"
    assert machine.check() is machine.target


def test_a_clean_stop_in_the_middle_of_a_move_leaves_a_log_that_is_not_unclean() -> None:
    machine = Machine()
    disk, rename = machine.disks[1], machine.disks[1].rename

    def refused(old: str, new: str) -> None:
        if old.endswith("/partition-0"):
            raise OSError(5, "Input/output error", old)
        rename(old, new)

    disk.rename = refused  # type: ignore[method-assign]
    with pytest.raises(MoveUnfinished):
        machine.move()
    disk.rename = rename  # type: ignore[method-assign]
    machine.source.close()
    machine.target.close()
    machine.open()
    assert machine.target.shutdown.clean
    settle(machine.files, [machine.source, machine.target])
    assert machine.check() is machine.target


def test_an_old_folder_that_was_written_to_behind_the_mark_stays_the_log() -> None:
    """By a release that does not know marks."""
    machine = marked()
    log = machine.opened(machine.source)
    log.append(batch(2), 4)
    flush(log)
    machine.records = records(log)
    machine.source.close()
    machine.target.close()
    machine.open()
    (done,) = settle(machine.files, [machine.source, machine.target])
    assert (done.path, done.entry) == ("/a/topics/t/partition-0", None)
    assert _is_whole(machine)
    assert not machine.source.shutdown.unclean
    assert machine.files.listdir(f"/a/{MOVED}") == []
    assert len(future_folders(machine.files, machine.target)) == 1


def test_an_old_folder_that_was_cut_behind_the_mark_leaves_a_new_one_which_is_unclean() -> None:
    machine = marked()
    log = machine.opened(machine.source)
    log.truncate_to(8)
    machine.source.close(clean=False)
    machine.target.close(clean=False)
    machine.open()
    (done,) = settle(machine.files, [machine.source, machine.target])
    assert done.path == "/b/topics/t/partition-0"
    assert list(machine.target.shutdown.unclean) == [KEY]


def test_a_directory_that_was_away_gives_way_to_the_one_that_a_later_move_has_reached() -> None:
    machine = marked()
    third = DataDirectory.open(machine.files, "/b/c", cluster_id="c", node_id=1, rng=RNG, clock=CLOCK)
    copy, _ = future_folders(machine.files, machine.target)[0]
    third.folders.keep_topic("t", TOPIC_ID)
    machine.files.rename(copy, third.partition_path("t", 0))
    for directories in ([machine.source, third], [machine.source, machine.target, third]):
        moves = settle(machine.files, directories)
        assert [move.path for move in moves] == (
            ["/b/c/topics/t/partition-0"] if len(directories) == 2 else []
        )
    assert not machine.source.holds("t", 0)
    assert not machine.source.shutdown.unclean
