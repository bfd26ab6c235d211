"""The log start offset is on the disk before segments below it go; a missing first segment is damage."""

from __future__ import annotations

import pytest

from penstock.model.ids import TopicId, TopicPartition
from penstock.storage.checkpoint import format_checked, parse_checkpoint
from penstock.storage.config import LogConfig
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.recorded_offsets import recorded_offsets
from penstock.storage.scan import CorruptLog
from penstock.storage.segment_files import LOG
from tests.storage.earlier_releases import of_version_0
from tests.storage.logs import CLOCK, NOW_MS, Tokens, batch, flush, records

STARTS = "/data/log-start-offset-checkpoint"
RECOVERY_POINTS = "/data/recovery-point-offset-checkpoint"
CONFIG = LogConfig(retention_ms=1000)


def opened(files: MemoryFiles) -> DataDirectory:
    return DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())


def rolled(files: MemoryFiles, config: LogConfig = CONFIG) -> tuple[DataDirectory, Log]:
    """A log with segments at 0, 2, 4 and 6, the last of them empty; all is committed and checkpointed."""
    directory = opened(files)
    directory.create_partitions([StoredPartition("a", 0, TopicId(bytes(16)))])
    log = directory.open_log("a", 0, config, CLOCK)
    for nth in range(6):
        log.append(batch(timestamp=NOW_MS + 1000 * nth), 0)
        if nth % 2:
            log.roll()
    log.advance_high_watermark(6)
    flush(log)
    directory.checkpoint().write()
    return directory, log


def lose_checkpoint(files: MemoryFiles, how: str) -> None:
    if how == "damaged":
        files.write_atomic(STARTS, files.read(STARTS)[:-1])
        return
    files.remove(STARTS)
    if how == "both removed":
        files.remove(RECOVERY_POINTS)


def remove_segment(files: MemoryFiles, log: Log, nth: int) -> None:
    files.remove(list(log.segments)[nth].path(LOG))


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_first_segment_is_damage_and_not_a_new_start(clean: bool) -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    directory.close(clean)
    remove_segment(files, log, 0)
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.end_offset) == (0, 6)
    (damage,) = again.recovery.corruption
    assert (damage.first_offset, damage.next_offset) == (0, 2)
    with pytest.raises(CorruptLog):
        again.read(1, 100, upper=6)
    assert again.read(2, 100, upper=6) is not None
    again.advance_high_watermark(6)
    again.delete_records(2)
    assert (again.recovery.corruption, len(records(again))) == ([], 4)


@pytest.mark.parametrize("how", ["removed", "damaged", "both removed"])
@pytest.mark.parametrize("start", [0, 3])
def test_the_manifest_has_the_start_of_a_log_whose_checkpoint_is_lost(how: str, start: int) -> None:
    """As leader, a log that starts where it has segments would make its followers delete their copies."""
    files = MemoryFiles()
    directory, log = rolled(files)
    log.delete_records(start)
    directory.close()
    remove_segment(files, log, 1)
    if start == 0:
        remove_segment(files, log, 0)
    lose_checkpoint(files, how)
    directory = opened(files)
    again = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.end_offset) == (start, 6)
    (damage,) = again.recovery.corruption
    assert (max(damage.first_offset, start), damage.next_offset) == (start, 4)
    assert "is missing" in directory.shutdown.unclean[TopicPartition("a", 0)]


@pytest.mark.parametrize("how", ["removed", "damaged", "both removed"])
def test_a_log_without_its_checkpoint_matches_the_manifest(how: str) -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    log.delete_records(3)
    assert [removal.base_offset for removal in log.retention.apply(NOW_MS)] == [0]
    directory.close()
    lose_checkpoint(files, how)
    directory = opened(files)
    again = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.recovery.corruption) == (3, [])
    assert directory.shutdown.unclean == {}


@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_after_a_crash_the_other_checkpoint_has_the_start_of_a_log(how: str) -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    directory.close(clean=False)
    remove_segment(files, log, 0)
    lose_checkpoint(files, how)
    assert recorded_offsets(files, log.path) == (0, 6)
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    (damage,) = again.recovery.corruption
    assert (again.log_start_offset, damage.first_offset, damage.next_offset) == (0, 0, 2)


@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_retention_saves_the_start_in_both_checkpoints_first(how: str) -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    assert [removal.base_offset for removal in log.retention.apply(NOW_MS + 2001)] == [0]
    directory.close(clean=False)
    lose_checkpoint(files, how)
    assert recorded_offsets(files, log.path) == (2, 6)
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.recovery.corruption) == (2, [])


def test_recovery_points_of_earlier_releases_have_no_starts() -> None:
    for version in (of_version_0, format_checked):
        files = MemoryFiles()
        directory, log = rolled(files)
        directory.close(clean=False)
        remove_segment(files, log, 0)
        files.remove(STARTS)
        files.write_atomic(RECOVERY_POINTS, version(["a 0 6"]))
        assert recorded_offsets(files, log.path) == (None, 6)
        again = opened(files).open_log("a", 0, CONFIG, CLOCK)
        assert (again.log_start_offset, again.recovery_point, again.recovery.corruption) == (2, 6, [])


def test_the_start_is_saved_before_retention_removes_segments() -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    assert log.retention.expire(NOW_MS + 2001)
    assert (log.log_start_offset, len(log.segments)) == (2, 4)
    assert log.retention.remove_expired() == [], "the disk does not have the new start yet"
    checkpoint = directory.checkpoint()
    checkpoint.write()
    directory.checkpointed(checkpoint)
    assert [removal.base_offset for removal in log.retention.remove_expired()] == [0]
    directory.close(clean=False)
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.recovery.corruption) == (2, [])


def test_retention_of_a_single_log_saves_its_start_by_itself() -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    assert [removal.base_offset for removal in log.retention.apply(NOW_MS + 4001)] == [0, 2]
    assert parse_checkpoint(files.read(STARTS)) == ["a 0 - 4"]
    directory.close(clean=False)
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.recovery.corruption) == (4, [])


def test_a_log_that_was_reset_begins_where_it_was_reset_to() -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    log.reset_to(100)
    assert parse_checkpoint(files.read(STARTS)) == ["a 0 - 100 unexplained"]
    directory.close(clean=False)
    again = opened(files).open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.end_offset, again.recovery.corruption) == (100, 100, [])
    assert again.explained_start == 0, "the leader has to say that records were deleted"


@pytest.mark.parametrize("lost", [(), (STARTS,), (RECOVERY_POINTS,)])
@pytest.mark.parametrize("clean", [True, False])
def test_a_start_without_any_record_stays_unexplained(clean: bool, lost: tuple[str, ...]) -> None:
    """Otherwise it would have a record, and so count as the result of retention, after the next restart."""
    files = MemoryFiles()
    directory, log = rolled(files)
    directory.close(clean=False)
    remove_segment(files, log, 0)
    lose_checkpoint(files, "both removed")
    directory = opened(files)
    again = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.explained_start) == (2, 0)
    directory.close(clean)
    if not clean:
        directory.checkpoint().write()
    for path in lost:
        files.remove(path)
    directory = opened(files)
    again = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.explained_start, again.recovery.corruption) == (2, 0, [])
    again.advance_high_watermark(6)
    assert again.delete_records(2) == again.explained_start == 2, "an operator has given up the rest"
    directory.checkpoint().write()
    assert parse_checkpoint(files.read(STARTS)) == ["a 0 - 2"]


@pytest.mark.parametrize("how", ["removed", "damaged"])
def test_retention_and_deletions_explain_the_start(how: str) -> None:
    files = MemoryFiles()
    directory, log = rolled(files)
    log.delete_records(1)
    assert log.explained_start == 1
    log.retention.apply(NOW_MS + 2001)
    assert log.explained_start == log.log_start_offset == 2
    directory.close(clean=False)
    lose_checkpoint(files, how)
    assert opened(files).open_log("a", 0, CONFIG, CLOCK).explained_start == 2


def test_starts_that_release_0_1_0_wrote_damage_nothing() -> None:
    """That release removed segments first, and had lines only for logs whose start was not 0."""
    for lines, line in (([], "a 0 - 2 unexplained"), (["a 0 1"], "a 0 - 2")):
        files = MemoryFiles()
        directory, log = rolled(files)
        directory.close(clean=False)
        remove_segment(files, log, 0)
        files.write_atomic(STARTS, of_version_0(lines))
        files.write_atomic(RECOVERY_POINTS, of_version_0(["a 0 6"]))
        directory = opened(files)
        # A checkpoint that is written before the log is opened does not make the start a recorded one.
        directory.checkpoint().write()
        directory.close(clean=False)
        directory = opened(files)
        again = directory.open_log("a", 0, CONFIG, CLOCK)
        assert (again.log_start_offset, again.recovery.corruption) == (2, [])
        directory.checkpoint().write()
        assert parse_checkpoint(files.read(STARTS)) == [line]


def test_a_checked_checkpoint_whose_bytes_changed_is_refused() -> None:
    content = format_checked(["a 0 4", "b 1 0"])
    assert parse_checkpoint(content) == ["a 0 4", "b 1 0"]
    for position in range(2, len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 1
        with pytest.raises(ValueError):
            parse_checkpoint(bytes(damaged))
    with pytest.raises(ValueError):
        parse_checkpoint(content[:-1])


def _create(directory: DataDirectory, topic_id: TopicId) -> Log:
    """A new topic with 6 committed records."""
    partition = StoredPartition("a", 0, topic_id)
    directory.forget([partition])
    directory.create_partitions([partition])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    for nth in range(6):
        log.append(batch(timestamp=NOW_MS + 1000 * nth), 0)
    log.advance_high_watermark(6)
    flush(log)
    return log


def recreated(files: MemoryFiles, *, clean: bool) -> dict[str, bytes]:
    """A topic of 6 records, created again after a topic of that name whose records were all deleted.

    Returns the checkpoints of the deleted topic.
    """
    directory = opened(files)
    _create(directory, TopicId(b"1" * 16)).delete_records(6)
    directory.checkpoint().write()
    old = {path: files.read(path) for path in (STARTS, RECOVERY_POINTS)}
    removal = directory.remove_topic("a", [0])
    removal.set_aside()
    removal.delete()
    _create(directory, TopicId(b"2" * 16))
    directory.checkpoint().write()
    directory.close(clean)
    return old


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("put_back", [(STARTS,), (RECOVERY_POINTS,), (STARTS, RECOVERY_POINTS)])
def test_the_start_of_a_deleted_topic_is_not_that_of_its_successor(
    clean: bool, put_back: tuple[str, ...]
) -> None:
    files = MemoryFiles()
    old = recreated(files, clean=clean)
    for path in put_back:
        files.write_atomic(path, old[path])
    directory = opened(files)
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (log.log_start_offset, log.end_offset, len(records(log))) == (0, 6, 6)
    assert (log.recovery.corruption, directory.shutdown.unclean) == ([], {})
    assert recorded_offsets(files, log.path)[0] in (None, 0)


def test_an_older_log_start_is_ignored_after_a_clean_shutdown() -> None:
    """The manifest was written last: it decides."""
    files = MemoryFiles()
    directory, log = rolled(files)
    older = {path: files.read(path) for path in (STARTS, RECOVERY_POINTS)}
    log.delete_records(3)
    assert [removal.base_offset for removal in log.retention.apply(NOW_MS)] == [0]
    directory.close()
    for path, content in older.items():
        files.write_atomic(path, content)
    directory = opened(files)
    again = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, again.recovery.corruption) == (3, [])
    assert directory.shutdown.unclean == {}


def test_an_older_manifest_does_not_describe_the_successor_of_a_topic() -> None:
    """Its end would be the recovery point of the new log: all offsets up to there would be missing."""
    files = MemoryFiles()
    directory, log = rolled(files)
    directory.close()
    manifest = files.read("/data/clean-shutdown")
    files.remove("/data/clean-shutdown")
    files.rmtree("/data/topics/a")
    directory = opened(files)
    partition = StoredPartition("a", 0, TopicId(b"2" * 16))
    directory.forget([partition])
    directory.create_partitions([partition])
    log = directory.open_log("a", 0, CONFIG, CLOCK)
    log.append(batch(), 0)
    flush(log)
    directory.checkpoint().write()
    directory.close(clean=False)
    files.write_atomic("/data/clean-shutdown", manifest)
    directory = opened(files)
    again = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (again.end_offset, again.recovery.corruption) == (1, [])
    assert "topic id" in directory.shutdown.unclean[TopicPartition("a", 0)]


def test_a_start_of_an_earlier_release_beside_newer_recovery_points_is_an_older_copy() -> None:
    files = MemoryFiles()
    directory, _ = rolled(files)
    directory.close(clean=False)
    files.write_atomic(STARTS, format_checked(["a 0 6"]))
    directory = opened(files)
    again = directory.open_log("a", 0, CONFIG, CLOCK)
    assert (again.log_start_offset, len(records(again))) == (0, 6)
    assert list(directory.damaged_checkpoints) == [STARTS]
