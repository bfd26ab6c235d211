"""What a data directory keeps for bad times, and from when on a disk that was full has room again."""

from __future__ import annotations

from random import Random

import pytest

from penstock.broker.base.system_ports import SystemRng
from penstock.broker.node.metadata_log import MetadataLog
from penstock.model.errors import NotLeaderOrFollower, StorageError
from penstock.raft.state import QuorumState
from penstock.raft.voters import VoterSet
from penstock.storage.config import LogConfig
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from penstock.testing.disk import FaultyDisk
from tests.storage.directories import opened
from tests.storage.logs import CLOCK, append_marker, idempotent, marker

MIB = 1 << 20


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(Random(0))


def log_in(disk: FaultyDisk) -> Log:
    return Log.open(disk, "/data/log", LogConfig(), CLOCK, clean=True, health=opened(disk).health)


def test_the_first_write_that_finds_no_room_frees_the_reserve(disk: FaultyDisk) -> None:
    directory = opened(disk)
    assert disk.size("/data/reserve") == MIB
    log = Log.open(disk, "/data/log", LogConfig(), CLOCK, clean=True, health=directory.health)
    disk.capacity = disk.used()
    with pytest.raises(StorageError, match="No space left"):
        log.append(idempotent(0), 0)
    assert not disk.exists("/data/reserve")
    assert directory.health.offline is None


def test_a_full_directory_takes_metadata_and_no_records(disk: FaultyDisk) -> None:
    log = log_in(disk)
    disk.capacity = disk.used()
    with pytest.raises(StorageError):
        log.append(idempotent(0), 0)
    with pytest.raises(StorageError, match="is full"):
        log.check_room()
    log.append(idempotent(0), 0)
    assert log.end_offset == 1


def test_batches_after_one_that_a_full_directory_refused_are_refused(disk: FaultyDisk) -> None:
    log = log_in(disk)
    log.append(idempotent(0), 0)
    log.health.full = "another write found no room"
    with pytest.raises(StorageError, match="is full"):
        log.check_room()
    log.health.full = None
    with pytest.raises(NotLeaderOrFollower, match="a batch that was refused may be on its way"):
        log.append(idempotent(2), 0)
    assert log.append(idempotent(1), 0).base_offset == 1


def test_a_vote_is_written_on_a_full_disk(disk: FaultyDisk) -> None:
    metadata_log = MetadataLog(log_in(disk), disk, CLOCK)
    disk.capacity = disk.used()
    metadata_log.save_state(QuorumState(7))
    assert metadata_log.load_state(1, VoterSet(), SystemRng()).epoch == 7


def test_the_entry_of_an_aborted_transaction_is_written_on_a_full_disk(disk: FaultyDisk) -> None:
    """Its marker has just filled the disk. Without the entry, consumers would read aborted records."""
    log = log_in(disk)
    log.append(idempotent(0, transactional=True), 0, guard=NO_VERIFICATION)
    aborted = marker(committed=False)
    disk.capacity = disk.used() + len(aborted)
    append_marker(log, aborted)
    log.advance_high_watermark(log.end_offset)
    assert log.aborted_transactions(0, log.end_offset) == [(7, 0)]
    assert log.health.offline is None
    with pytest.raises(StorageError, match="is full"):
        log.check_room()


def test_there_is_room_again_when_more_than_the_reserve_fits(disk: FaultyDisk) -> None:
    directory = opened(disk)
    disk.remove("/data/reserve")
    disk.capacity = disk.used() + 2 * MIB
    assert not directory.has_room()
    assert not disk.exists("/data/reserve")
    disk.capacity += 20 * MIB
    assert directory.has_room()
    assert disk.size("/data/reserve") == MIB


def test_a_directory_without_room_for_its_reserve_is_full_from_the_start(disk: FaultyDisk) -> None:
    opened(disk).close()
    disk.remove("/data/reserve")
    disk.capacity = disk.used() + MIB // 2
    directory = opened(disk)
    assert directory.health.full is not None
    assert not disk.exists("/data/reserve")


def test_a_reserve_left_by_a_crash_is_replaced(disk: FaultyDisk) -> None:
    opened(disk).close()
    disk.open("/data/reserve").truncate(10)
    opened(disk)
    assert disk.size("/data/reserve") == MIB
