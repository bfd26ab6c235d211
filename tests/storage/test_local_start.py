"""The local log start: on the disk before segments below it go, and right after a crash at any step."""

from __future__ import annotations

import pytest

from penstock.model.errors import OffsetOutOfRange, RemoteReadFailed
from penstock.model.ids import TopicId, TopicPartition
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.producers import ProducerState
from penstock.storage.recorded_offsets import recorded_offsets
from tests.storage.logs import CLOCK, NOW_MS, Tokens, batch, flush, records

LOCAL_STARTS = "/data/local-log-start-offset-checkpoint"
RECOVERY_POINTS = "/data/recovery-point-offset-checkpoint"
CONFIG = LogConfig(retention_ms=10_000, local_retention_ms=1000)


def opened(files: MemoryFiles) -> DataDirectory:
    return DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())


def open_log(files: MemoryFiles) -> tuple[DataDirectory, Log]:
    directory = opened(files)
    return directory, directory.open_log("a", 0, CONFIG, CLOCK)


def rolled(files: MemoryFiles) -> tuple[DataDirectory, Log]:
    """A log with segments at 0, 2, 4 and 6, the last one empty, in three leader epochs; all is committed."""
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, TopicId(bytes(16)))])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    for nth in range(6):
        log.append(batch(timestamp=NOW_MS + 1000 * nth), nth // 2)
        if nth % 2:
            log.roll()
    log.advance_high_watermark(6)
    flush(log)
    directory.checkpoint().write()
    return directory, log


def freed(files: MemoryFiles, offset: int = 4) -> tuple[DataDirectory, Log]:
    """A log whose segments below `offset` are only in an archive."""
    directory, log = rolled(files)
    log.advance_local_start(offset)
    save(directory)
    for removal in log.retention.remove_expired():
        removal.delete()
    return directory, log


def save(directory: DataDirectory) -> None:
    checkpoint = directory.checkpoint()
    checkpoint.write()
    directory.checkpointed(checkpoint)


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_segments_go_only_once_the_local_start_is_on_the_disk() -> None:
    directory, log = rolled(MemoryFiles())
    log.advance_local_start(4)
    assert log.retention.remove_expired() == []

    save(directory)

    assert len(log.retention.remove_expired()) == 2
    assert (bases(log), log.log_start_offset, log.local_log_start_offset) == ([4, 6], 0, 4)
    assert log.leader_epochs.within(0, 6) == [0, 0, 1, 2, 2, 4], "followers ask for earlier epochs"


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_is_opened_with_its_local_start_and_without_damage(clean: bool) -> None:
    files = MemoryFiles()
    directory, _ = freed(files)
    directory.close(clean)

    again, log = open_log(files)

    assert (log.log_start_offset, log.local_log_start_offset, log.end_offset) == (0, 4, 6)
    assert log.recovery.corruption == [] and again.shutdown.unclean == {}
    assert log.recovery.clean is clean
    assert log.leader_epochs.within(0, 6) == [0, 0, 1, 2, 2, 4]
    assert [each.offset for each in records(log)] == [4, 5]


@pytest.mark.parametrize("saved", [True, False])
def test_a_crash_before_the_removal_loses_nothing(saved: bool) -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    log.advance_local_start(4)
    if saved:
        save(directory)
    directory.close(clean=False)

    _, log = open_log(files)

    assert (log.log_start_offset, log.local_log_start_offset, bases(log)) == (
        0,
        4 if saved else 0,
        [0, 2, 4, 6],
    )
    assert log.recovery.corruption == []


@pytest.mark.parametrize("how", ["removed", "damaged"])
@pytest.mark.parametrize("clean", [True, False])
def test_one_lost_file_does_not_make_freed_segments_look_lost(clean: bool, how: str) -> None:
    files = MemoryFiles()
    directory, _ = freed(files)
    directory.close(clean)
    if how == "removed":
        files.remove(LOCAL_STARTS)
    else:
        files.write_atomic(LOCAL_STARTS, files.read(LOCAL_STARTS)[:-1])

    _, log = open_log(files)

    assert (log.log_start_offset, log.local_log_start_offset, log.recovery.corruption) == (0, 4, [])


def test_a_hole_is_reported_if_all_files_with_the_local_start_are_lost() -> None:
    files = MemoryFiles()
    directory, _ = freed(files)
    directory.close(clean=False)
    files.remove(LOCAL_STARTS)
    files.remove(RECOVERY_POINTS)

    _, log = open_log(files)

    (hole,) = log.recovery.corruption
    assert (hole.first_offset, hole.next_offset, log.log_start_offset) == (0, 4, 0)
    assert log.retention.local_end(6, None) == 4, "the archive may have it: a proof decides"


def test_the_local_start_of_another_topic_does_not_count() -> None:
    files = MemoryFiles()
    directory, _ = freed(files)
    directory.close(clean=False)
    text = files.read(LOCAL_STARTS)
    assert b"a 0 - 4" in text
    checkpoints = opened(files)._checkpoints
    assert checkpoints.local_start(TopicPartition("a", 0), "x" * 22) == 4
    checkpoints._topic_ids["local-log-start-offset-checkpoint"][TopicPartition("a", 0)] = "y" * 22
    assert checkpoints.local_start(TopicPartition("a", 0), "x" * 22) == 0


def test_a_log_start_behind_the_local_start_takes_its_place() -> None:
    files = MemoryFiles()
    directory, log = freed(files)
    log.delete_records(5)
    assert (log.log_start_offset, log.local_log_start_offset) == (5, 5)
    save(directory)
    directory.close(clean=False)

    _, log = open_log(files)

    assert (log.log_start_offset, log.local_log_start_offset, len(records(log))) == (5, 5, 1)


def test_a_log_start_within_the_archive_forgets_earlier_epochs_and_no_segment() -> None:
    _, log = freed(MemoryFiles())
    log.delete_records(2)
    assert (log.log_start_offset, log.local_log_start_offset) == (2, 4)
    assert log.leader_epochs.within(0, 6) == [1, 2, 2, 4]


def test_offsets_of_the_archive_are_not_out_of_range_while_it_is_not_read() -> None:
    """A consumer would reset its position, and skip records."""
    _, log = freed(MemoryFiles())
    with pytest.raises(RemoteReadFailed, match="in the archive"):
        log.read(1, 100, upper=6)
    with pytest.raises(RemoteReadFailed):
        log.batch_at_or_after(0, 0)
    with pytest.raises(RemoteReadFailed):
        log.aborted_transactions(1, 6)
    log.delete_records(2)
    with pytest.raises(OffsetOutOfRange):
        log.read(1, 100, upper=6)


@pytest.mark.parametrize(
    ("local_ms", "local_bytes", "below", "expected"),
    [
        (1000, -2, 6, 4),
        (1000, -2, 3, 2),
        (1000, -2, 1, 0),
        (-1, 0, 6, 6),
        (-1, -1, 6, 0),
        (-2, -2, 6, 0),
        (10_000, -1, 6, 0),
    ],
)
def test_local_retention_decides_by_time_and_size(
    local_ms: int, local_bytes: int, below: int, expected: int
) -> None:
    _, log = rolled(MemoryFiles())
    log.reconfigure(
        LogConfig(retention_ms=10_000, local_retention_ms=local_ms, local_retention_bytes=local_bytes)
    )
    assert log.retention.local_end(below, NOW_MS + 4500) == expected


def test_without_a_trusted_clock_only_the_size_counts() -> None:
    _, log = rolled(MemoryFiles())
    assert log.retention.local_end(6, None) == 0
    log.reconfigure(LogConfig(retention_ms=10_000, local_retention_ms=1000, local_retention_bytes=0))
    assert log.retention.local_end(6, None) == 6


def test_a_truncation_below_the_local_start_starts_over_at_the_log_start() -> None:
    files = MemoryFiles()
    directory, log = freed(files)
    log.truncate_to(3)
    assert (log.log_start_offset, log.local_log_start_offset, log.end_offset) == (0, 0, 0)
    log.append(batch(), 7)
    directory.close(clean=False)

    _, log = open_log(files)

    assert (log.log_start_offset, log.local_log_start_offset, len(records(log))) == (0, 0, 1)


def test_a_truncation_to_the_local_start_keeps_the_archived_part() -> None:
    files = MemoryFiles()
    directory, log = freed(files)
    log.truncate_to(4)
    assert (log.log_start_offset, log.local_log_start_offset, log.end_offset) == (0, 4, 4)
    assert log.leader_epochs.within(0, 4) == [0, 0, 1, 2] and not log.lacks_history
    directory.close(clean=False)

    _, log = open_log(files)

    assert (log.log_start_offset, log.local_log_start_offset, log.end_offset) == (0, 4, 4)
    assert log.leader_epochs.within(0, 4) == [0, 0, 1, 2]


def restart(log: Log) -> None:
    producer = ProducerState(7, 0, -1, NOW_MS, None, [])
    log.restart_behind(20, 3, [0, 0, 5, 12], [producer])


def test_a_log_starts_over_behind_an_archive() -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    restart(log)
    assert not log.lacks_history
    flush(log)
    log.append_replicated(memoryview(replicated(20, 6)), 6)
    directory.close(clean=False)

    _, log = open_log(files)

    assert (log.log_start_offset, log.local_log_start_offset, log.end_offset) == (3, 20, 21)
    assert log.explained_start == 3 and log.recovery.corruption == []
    assert log.leader_epochs.within(3, 21) == [0, 0, 5, 12, 6, 20]
    assert list(log.producers.states) == [7]


def replicated(offset: int, epoch: int) -> bytearray:
    data = bytearray(batch())
    data[:8] = offset.to_bytes(8, "big")
    data[12:16] = epoch.to_bytes(4, "big")
    return data


def test_a_crash_before_the_history_is_on_the_disk_is_recognised() -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    restart(log)
    assert "leader-epoch-checkpoint" not in files.listdir(log.path)
    directory.close(clean=False)

    _, log = open_log(files)

    assert (log.log_start_offset, log.local_log_start_offset, log.end_offset) == (3, 20, 20)
    assert log.lacks_history


def test_tools_see_the_local_start_as_the_start_of_the_files() -> None:
    files = MemoryFiles()
    directory, log = freed(files)
    directory.close(clean=False)
    assert recorded_offsets(files, log.path)[0] == 4
