"""Disks that are full or failing: what is refused, what goes on, and what goes offline for good."""

from __future__ import annotations

import errno
from random import Random

import pytest

from penstock.model.errors import NotLeaderOrFollower, StorageError
from penstock.storage import truncation
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.health import Health
from penstock.storage.log import Log
from penstock.storage.transactions import TransactionIndex
from penstock.testing.disk import FaultyDisk
from tests.storage.logs import (
    CLOCK,
    PATH,
    append_marker,
    batch,
    flush,
    idempotent,
    marker,
    open_log,
    record_at_or_after,
    records,
)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(Random(0))


def fill(disk: FaultyDisk, spare: int = 0) -> None:
    disk.capacity = disk.used() + spare


def test_a_full_disk_refuses_the_append_and_nothing_else(disk: FaultyDisk) -> None:
    log = open_log(disk)
    log.append(idempotent(0, 3), 0)
    fill(disk, spare=10)
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left"):
            log.append(idempotent(3), 0)
    assert log.end_offset == 3
    assert [record.offset for record in records(log)] == [0, 1, 2]
    disk.capacity = None
    assert log.append(idempotent(3), 0).base_offset == 3
    assert len(records(log)) == 4


def test_batches_after_one_that_a_full_disk_refused_are_refused(disk: FaultyDisk) -> None:
    """A producer that has several in flight would take a gap for a loss, and send some of them twice."""
    log = open_log(disk)
    log.append(idempotent(0), 0)
    fill(disk)
    with pytest.raises(StorageError):
        log.append(idempotent(1), 0)
    disk.capacity = None
    log.append(idempotent(0, producer_id=8), 0)
    with pytest.raises(NotLeaderOrFollower, match="a batch that was refused may be on its way"):
        log.append(idempotent(2), 0)
    log.append(idempotent(1), 0)
    log.append(idempotent(2), 0)


@pytest.mark.parametrize("spare", range(0, 120, 7))
def test_a_disk_that_fills_up_while_a_segment_rolls_loses_nothing(disk: FaultyDisk, spare: int) -> None:
    log = open_log(disk, segment_bytes=400, index_interval_bytes=0)
    sequence = 0
    while log.size + len(idempotent(0)) <= 400:
        log.append(idempotent(sequence), 0)
        sequence += 1
    fill(disk, spare)
    for _ in range(3):
        with pytest.raises(StorageError):
            log.append(idempotent(sequence), 0)
    disk.capacity = None
    for _ in range(10):
        log.append(idempotent(sequence), 0)
        sequence += 1
    flush(log)
    assert [record.offset for record in records(log)] == list(range(sequence))
    disk.restart()
    again = open_log(disk, recovery_point=log.recovery_point)
    assert [record.offset for record in records(again)] == list(range(sequence))
    assert again.producers.states[7].last_sequence == sequence - 1


def test_a_failed_sync_takes_the_directory_offline_for_good(disk: FaultyDisk) -> None:
    health = Health()
    log = Log.open(disk, PATH, open_log().config, CLOCK, clean=False, health=health)
    other = Log.open(disk, PATH + "1", log.config, CLOCK, clean=False, health=health)
    log.append(batch(), 0)
    disk.sync_error = errno.EIO
    plan = log.flush_plan()
    with pytest.raises(StorageError):
        plan.sync()
    disk.sync_error = None
    assert log.recovery_point == 0
    assert health.offline is not None
    for broken in (log, other):
        with pytest.raises(StorageError, match="offline"):
            broken.append(batch(), 0)
        with pytest.raises(StorageError, match="offline"):
            broken.read(0, 100, upper=1)
        with pytest.raises(StorageError, match="offline"):
            record_at_or_after(broken, 0)
        with pytest.raises(StorageError, match="offline"):
            broken.roll()
        with pytest.raises(StorageError, match="offline"):
            broken.close()


def test_no_space_at_a_sync_is_as_bad_as_any_error_there(disk: FaultyDisk) -> None:
    health = Health()
    log = Log.open(disk, PATH, open_log().config, CLOCK, clean=False, health=health)
    log.append(batch(), 0)
    disk.sync_error = errno.ENOSPC
    with pytest.raises(StorageError):
        flush(log)
    assert health.offline is not None


def test_a_failed_read_takes_the_directory_offline(disk: FaultyDisk) -> None:
    health = Health()
    log = Log.open(disk, PATH, open_log(index_interval_bytes=0).config, CLOCK, clean=False, health=health)
    for _ in range(40):
        log.append(batch(), 0)
    disk.read_error = errno.EIO
    with pytest.raises(StorageError):
        # Less than a batch: its size has to be read.
        log.read(1, 1, upper=40)
    assert health.offline is not None


def test_running_out_of_descriptors_is_not_the_disks_fault() -> None:
    health = Health()
    assert isinstance(health.failed(OSError(errno.EMFILE, "too many"), "open"), StorageError)
    assert health.offline is None
    health.check()


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_sync_without_a_descriptor_is_tried_again(disk: FaultyDisk, code: int) -> None:
    """Nothing was tried: what a failed sync says about the disk, this does not."""
    log = open_log(disk)
    log.append(batch(), 0)
    disk.sync_error = code
    plan = log.flush_plan()
    with pytest.raises(StorageError):
        plan.sync()
    log.flush_failed(plan)
    assert log.health.offline is None

    disk.sync_error = None
    flush(log)
    assert log.recovery_point == 1
    disk.restart(power_loss=True)
    assert [record.offset for record in records(open_log(disk))] == [0]


def test_a_file_that_was_closed_is_synced_and_written_on(disk: FaultyDisk) -> None:
    """Files are closed where descriptors are scarce."""
    log = open_log(disk)
    log.append(batch(), 0)
    log.close_file()
    flush(log)
    log.append(batch(), 0)
    log.close_file()
    flush(log)
    disk.restart(power_loss=True)
    assert [record.offset for record in records(open_log(disk))] == [0, 1]


def test_a_log_is_sealed_without_open_files(disk: FaultyDisk) -> None:
    log = open_log(disk)
    log.append(batch(), 0)
    plan = log.seal()
    assert log.segments.active.file is None
    assert not [handle for handle in plan.handles if hasattr(handle, "fileno")]
    plan.sync()


def test_an_abort_that_cannot_be_indexed_takes_the_directory_offline(disk: FaultyDisk) -> None:
    """The marker is in the log: without its entry, readers would take aborted records for committed ones."""
    log = open_log(disk)
    log.append(idempotent(0, transactional=True), 0, guard=NO_VERIFICATION)
    fill(disk, spare=len(marker(False)))
    with pytest.raises(StorageError):
        append_marker(log, marker(False))
    disk.capacity = None
    with pytest.raises(StorageError, match="offline"):
        log.read(0, 100, upper=1)
    again = open_log(disk)
    assert again.aborted_transactions(0, 2) == [(7, 0)]


def test_a_log_whose_producers_cannot_be_read_is_not_cut(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is cut and what is known of it must not part: its end would be where no record is."""
    log = open_log(disk)
    for sequence in range(3):
        log.append(idempotent(sequence), 0)

    def fail(*args: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(truncation, "load_producers", fail)
        with pytest.raises(StorageError, match="too many"):
            log.truncate_to(1)
    assert [record.offset for record in records(log)] == [0, 1, 2]
    log.truncate_to(1)
    assert log.append(idempotent(1), 1).base_offset == 1


def test_a_log_whose_segment_cannot_be_opened_is_not_cut(
    disk: FaultyDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(disk)
    for sequence in range(3):
        log.append(idempotent(sequence), 0)
        log.append(idempotent(sequence, producer_id=8), 0)
        log.roll()

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(TransactionIndex, "entries", fail)
        with pytest.raises(StorageError, match="too many"):
            log.truncate_to(1)
    assert log.health.offline is None
    assert [record.offset for record in records(log)] == [*range(6)]
    log.truncate_to(1)
    assert [record.offset for record in records(log)] == [0]


def test_a_partly_truncated_log_is_not_trusted(disk: FaultyDisk) -> None:
    """The error alone would pass, but the remaining bytes are unknown."""
    log = open_log(disk)
    for sequence in range(3):
        log.append(idempotent(sequence), 0)
        log.roll()
    disk.sync_error = errno.EMFILE
    with pytest.raises(StorageError):
        log.truncate_to(1)
    disk.sync_error = None
    with pytest.raises(StorageError, match="offline"):
        log.append(idempotent(3), 0)
    assert [record.offset for record in records(open_log(disk))] == [0, 1], "one went, one did not"


def test_the_first_reason_for_being_offline_is_reported() -> None:
    health = Health()
    health.failed(OSError(errno.EIO, "first"), "reading")
    health.sync_failed(OSError(errno.EIO, "second"), "syncing")
    assert health.offline is not None
    assert "first" in health.offline
