"""Checkpoint files: a recovery point on the disk is never above that of a log that is cut."""

from __future__ import annotations

import pytest

from penstock.model.ids import TopicId, TopicPartition, format_topic_id
from penstock.model.steps import at_once
from penstock.storage.checkpoint import format_checked
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.health import Health
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.offset_checkpoints import OffsetCheckpoints, protect_restored
from tests.storage.logs import CLOCK, Tokens, batch, flush

RECOVERY_POINTS = "/data/recovery-point-offset-checkpoint"
KEY = TopicPartition("a", 0)
ID = format_topic_id(bytes(16))


def log_of(files: MemoryFiles, appended: int) -> tuple[DataDirectory, Log]:
    """A log whose first batches are in a checkpoint, and all of whose `appended` ones are on the disk."""
    directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
    directory.create_partitions([StoredPartition("a", 0, TopicId(bytes(16)))])
    log = directory.open_log("a", 0, LogConfig(), CLOCK)
    for number in range(appended):
        if number == 5:
            flush(log)
            checkpoint = directory.checkpoint()
            checkpoint.write()
            directory.checkpointed(checkpoint)
        log.append(batch(), 0)
    flush(log)
    return directory, log


def test_a_truncation_above_the_last_checkpoint_writes_no_new_one() -> None:
    """A checkpoint syncs several files: followers that cut hundreds of logs after an election must not."""
    files = MemoryFiles()
    _, log = log_of(files, 9)
    before = files.read(RECOVERY_POINTS)
    log.truncate_to(7)
    log.truncate_to(5)
    assert (log.recovery_point, files.read(RECOVERY_POINTS)) == (5, before)
    log.truncate_to(4)
    assert files.read(RECOVERY_POINTS) == format_checked(["a 0 - 4 0"], version=3)


def test_checkpoints_that_are_being_written_count() -> None:
    files = MemoryFiles()
    directory, log = log_of(files, 9)
    slow = directory.checkpoint()
    log.truncate_to(6)
    slow.write()
    directory.checkpointed(slow)
    assert files.read(RECOVERY_POINTS) == format_checked(["a 0 - 6 0"], version=3)
    # The disk has what was written at the first cut: the second needs another.
    log.truncate_to(5)
    assert files.read(RECOVERY_POINTS) == format_checked(["a 0 - 5 0"], version=3)


def test_a_log_that_is_cut_while_offsets_are_collected_has_its_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The offsets of 20,000 logs were collected in one step of 31 ms. A log may change between two slices."""
    monkeypatch.setattr("penstock.storage.directory._LOGS_AT_ONCE", 1)
    files = MemoryFiles()
    directory, log = log_of(files, 9)
    directory.create_partitions([StoredPartition("b", 0, TopicId(bytes(16)))])
    directory.open_log("b", 0, LogConfig(), CLOCK)
    steps = directory.checkpoint_in_steps()
    next(steps)
    log.truncate_to(6)
    directory.let_go("b", 0)
    checkpoint = at_once(steps)
    checkpoint.write()
    directory.checkpointed(checkpoint)
    assert files.read(RECOVERY_POINTS) == format_checked(["a 0 - 6 0"], version=3)


def test_an_earlier_checkpoint_of_all_does_not_undo_a_later_one_of_high_watermarks() -> None:
    files = MemoryFiles()
    files.makedirs("/data")
    checkpoints = OffsetCheckpoints(files, "/data", Health())
    checkpoints.recovery_points[KEY] = 3
    checkpoints.keep_high_watermark(KEY, "-", 1)
    early = checkpoints.take()
    checkpoints.keep_high_watermark(KEY, "-", 2)
    late = checkpoints.take_high_watermarks({})
    assert late is not None
    late.write()
    early.write()
    assert files.read("/data/replication-offset-checkpoint") == format_checked(["a 0 - 2"], version=3)
    assert files.read(RECOVERY_POINTS) == format_checked(["a 0 - 3"], version=3)


def test_recovery_points_that_were_found_count() -> None:
    files = MemoryFiles()
    log_of(files, 9)
    again = OffsetCheckpoints(files, "/data", Health())
    assert [again.is_above(KEY, offset) for offset in (4, 5)] == [True, False]


def test_all_records_of_a_restored_log_count_as_committed() -> None:
    """A follower cuts above its high watermark without setting anything aside."""
    files = MemoryFiles()
    directory, log = log_of(files, 9)
    end_offset = log.end_offset
    directory.close(clean=False)
    protect_restored(files, "/data", [KEY], ID)
    again = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
    restored = again.open_log("a", 0, LogConfig(), CLOCK)
    assert (restored.high_watermark, restored.end_offset) == (end_offset, end_offset)


def test_high_watermarks_that_have_not_moved_are_not_written_again(monkeypatch: pytest.MonkeyPatch) -> None:
    files = MemoryFiles()
    files.makedirs("/data")
    written: list[str] = []
    write_atomic = files.write_atomic

    def note(path: str, content: bytes) -> None:
        written.append(path.rpartition("/")[2])
        write_atomic(path, content)

    monkeypatch.setattr(files, "write_atomic", note)
    checkpoints = OffsetCheckpoints(files, "/data", Health())
    checkpoints.keep_high_watermark(KEY, ID, 1)

    def write() -> list[str]:
        checkpoint = checkpoints.take_high_watermarks({})
        if checkpoint is not None:
            checkpoint.write()
        return [written.pop() for _ in range(len(written))]

    file = "replication-offset-checkpoint"
    assert write() == [file]
    assert write() == []
    checkpoints.take().write()
    assert file not in written
    written.clear()
    checkpoints.keep_high_watermark(KEY, ID, 2)
    assert write() == [file]
    # Of a topic that was created again under the name.
    checkpoints.keep_high_watermark(KEY, "-", 2)
    assert write() == [file]
    # An operator has removed the file.
    files.remove(f"/data/{file}")
    checkpoints.take().write()
    assert file in written
