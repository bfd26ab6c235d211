"""The metadata log over its storage: what an installed snapshot is followed by outlives a restart."""

from __future__ import annotations

from penstock.broker.base.system_ports import SystemClock
from penstock.broker.node.metadata_log import MetadataLog
from penstock.broker.node.snapshot_files import encode_snapshot
from penstock.raft.control import leader_change_batch
from penstock.raft.messages import LogPoint
from penstock.raft.voters import VoterSet
from penstock.records.batch import crc_matches, read_header
from penstock.records.record import Record, build_batch
from penstock.storage.config import LogConfig
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from tests.broker.events import Events

CLOCK = SystemClock()


def reopened(files: MemoryFiles) -> MetadataLog:
    """As after a crash of the process."""
    return MetadataLog(Log.open(files, "/log", LogConfig(), CLOCK, clean=False), files, CLOCK)


def batch(offset: int) -> bytes:
    return build_batch([Record(offset, 1, None, b"record")], base_offset=offset, leader_epoch=5)


def test_records_after_an_installed_snapshot_survive_a_crash() -> None:
    """The log knows nothing of the epoch before its start: that is no reason to start over."""
    files = MemoryFiles()
    files.makedirs("/log")
    log = reopened(files)
    snapshot = LogPoint(4, 43)
    log.write_snapshot(snapshot, 0, encode_snapshot([], None, 1, snapshot))
    log.install_snapshot(snapshot)
    for offset in (43, 44, 45):
        log.append_replicated(batch(offset))
    again = reopened(files)
    assert (again.start_offset, again.end_offset, again.snapshot) == (43, 46, snapshot)


def test_leader_epochs_of_a_file_that_are_not_those_of_the_batches_are_replaced(events: Events) -> None:
    """Earlier releases wrote the file without a checksum, and manifests without epochs."""
    files = MemoryFiles()
    files.makedirs("/log")
    log = reopened(files)
    log.append_replicated(batch(0))
    log.log.close()
    files.write_atomic("/log/leader-epoch-checkpoint", b"0\n1\n9 0\n")
    again = MetadataLog(Log.open(files, "/log", LogConfig(), CLOCK, clean=True), files, CLOCK)
    assert [*again.log.leader_epochs.epochs] == [5]
    ((level, fields),) = events.of("leader_epochs_replaced")
    assert (level, fields["found"], [*fields["batches"]]) == ("warning", [9], [5])


def test_a_log_that_parts_from_its_snapshot_starts_over() -> None:
    files = MemoryFiles()
    files.makedirs("/log")
    log = reopened(files)
    for offset in range(5):
        log.append_replicated(batch(offset))
    log.snapshots.store(LogPoint(6, 3), encode_snapshot([], None, 1, LogPoint(6, 3)))
    again = reopened(files)
    assert (again.start_offset, again.end_offset) == (3, 3)


def test_control_batches_have_the_time_of_the_wall_clock() -> None:
    """Raft counts its timeouts by a clock that starts with the machine."""
    files = MemoryFiles()
    files.makedirs("/log")
    log = reopened(files)
    before = CLOCK.now_ms()
    log.append(leader_change_batch(1, 3, VoterSet(()), [1], 12_345), 3)
    found = log.log.read(0, 1000, upper=1)
    assert found is not None
    header = read_header(found.read())
    assert before <= header.base_timestamp == header.max_timestamp <= CLOCK.now_ms()
    assert crc_matches(found.read(), header)
