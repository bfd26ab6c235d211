"""Offsets that are missing between segments are damage: reported at open, and never skipped by a read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import pytest

from penstock.model.ids import TopicId
from penstock.ports import File
from penstock.records.record import iter_batches
from penstock.storage.config import LogConfig
from penstock.storage.continuity import MISPLACED
from penstock.storage.directory import DataDirectory, StoredPartition
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.scan import CorruptLog
from penstock.storage.scrub import Piece, describe, scrub
from penstock.storage.segment_files import COMPACTED, LOG, SUFFIXES, file_name
from tests.storage.compacted import COMPACT, CompactedLog
from tests.storage.logs import CLOCK, PATH, Tokens, batch, flush, note_rot, open_log, records

#: whether the log was closed in good order
CLEAN = pytest.mark.parametrize("clean", [True, False])


def rolled(files: MemoryFiles, clean: bool) -> int:
    """A log with segments at 0, 4, 8 and 12, four batches each, all on the disk; returns its end offset."""
    log = open_log(files)
    for nth in range(16):
        if nth and nth % 4 == 0:
            log.roll()
        log.append(batch(), 0)
    flush(log)
    log.close(clean)
    return log.end_offset


def reopened(files: MemoryFiles, clean: bool, end_offset: int) -> Log:
    log = open_log(files, clean=clean, recovery_point=end_offset)
    log.advance_high_watermark(log.end_offset)
    return log


def remove(files: MemoryFiles, base_offset: int) -> None:
    for suffix in SUFFIXES:
        if files.exists(f"{PATH}/{file_name(base_offset)}{suffix}"):
            files.remove(f"{PATH}/{file_name(base_offset)}{suffix}")


def segment_path(base_offset: int) -> str:
    return f"{PATH}/{file_name(base_offset)}{LOG}"


def missing(log: Log) -> list[tuple[int, int]]:
    return [(damage.first_offset, damage.next_offset) for damage in log.recovery.corruption]


@CLEAN
def test_a_contiguous_log_has_no_holes(clean: bool) -> None:
    files = MemoryFiles()
    log = reopened(files, clean, rolled(files, clean))
    assert (missing(log), len(records(log))) == ([], 16)


@CLEAN
@pytest.mark.parametrize(("removed", "hole"), [([4], (4, 8)), ([8], (8, 12)), ([4, 8], (4, 12))])
def test_a_missing_middle_segment_is_damage(clean: bool, removed: list[int], hole: tuple[int, int]) -> None:
    files = MemoryFiles()
    end_offset = rolled(files, clean)
    for base_offset in removed:
        remove(files, base_offset)
    log = reopened(files, clean, end_offset)
    assert (log.log_start_offset, log.end_offset, missing(log)) == (0, 16, [hole])
    for offset in range(*hole):
        with pytest.raises(CorruptLog):
            log.read(offset, 1 << 20, upper=16)


@CLEAN
def test_a_read_never_goes_from_before_a_hole_to_behind_it(clean: bool) -> None:
    files = MemoryFiles()
    end_offset = rolled(files, clean)
    whole = open_log(files, clean=clean, recovery_point=end_offset)
    sizes = [segment.size for segment in whole.segments]
    whole.close(clean)
    remove(files, 4)
    log = reopened(files, clean, end_offset)
    before, behind = log.read(1, 1 << 20, upper=16), log.read(8, 1 << 20, upper=16)
    assert before is not None and before.position + before.size == sizes[0]
    assert behind is not None and behind.size == sizes[2]
    log.delete_records(8)
    assert (missing(log), len(records(log))) == ([], 8)


@CLEAN
@pytest.mark.parametrize("batches", [0, 1, 3])
@pytest.mark.parametrize("torn", [0, 10])
def test_a_truncated_segment_lacks_the_records_before_the_next_one(
    clean: bool, batches: int, torn: int
) -> None:
    files = MemoryFiles()
    end_offset = rolled(files, clean)
    file = files.open(segment_path(4))
    file.truncate(file.size() // 4 * batches + torn)
    log = reopened(files, clean, end_offset)
    assert missing(log) == [(4 + batches, 8)]
    assert log.segments.size == sum(segment.size for segment in log.segments)
    with pytest.raises(CorruptLog):
        log.read(4 + batches, 1 << 20, upper=16)


@CLEAN
def test_a_segment_under_another_name_is_set_aside_and_can_be_renamed_back(clean: bool) -> None:
    files = MemoryFiles()
    end_offset = rolled(files, clean)
    files.rename(segment_path(4), segment_path(6))
    log = reopened(files, clean, end_offset)
    assert missing(log) == [(4, 8)]
    assert files.exists(segment_path(6) + MISPLACED)
    log.close(clean)
    files.rename(segment_path(6) + MISPLACED, segment_path(4))
    log = reopened(files, clean, end_offset)
    assert (missing(log), len(records(log))) == ([], 16)


def test_the_last_segment_under_another_name_is_not_truncated() -> None:
    files = MemoryFiles()
    end_offset = rolled(files, clean=False)
    size = files.size(segment_path(12))
    files.rename(segment_path(12), segment_path(20))
    log = reopened(files, False, end_offset)
    assert missing(log) == [(12, 16)]
    assert files.size(segment_path(20) + MISPLACED) == size


@CLEAN
def test_records_below_the_log_start_are_not_missed(clean: bool) -> None:
    files = MemoryFiles()
    end_offset = rolled(files, clean)
    remove(files, 4)
    log = open_log(files, clean=clean, recovery_point=end_offset, log_start_offset=8)
    assert missing(log) == []


def compacted(clean: bool) -> CompactedLog:
    """A log whose sealed segments were compacted and too large to be merged."""
    topic = CompactedLog(config=replace(COMPACT, segment_bytes=300))
    for nth in range(12):
        topic.put((b"same" if nth % 2 else b"k%d" % nth, b"v" * 40))
    topic.put((b"same", b"last"))
    topic.compact()
    topic.put((b"z", b"z"))
    flush(topic.log)
    topic.log.close(clean)
    return topic


def reopen_compacted(topic: CompactedLog, clean: bool) -> Log:
    end_offset = topic.log.end_offset
    return Log.open(
        topic.files, topic.path, topic.config, topic.clock, clean=clean, recovery_point=end_offset
    )


@CLEAN
def test_gaps_that_compaction_left_are_no_holes(clean: bool) -> None:
    topic = compacted(clean)
    assert len(topic.log.segments) > 3
    assert missing(reopen_compacted(topic, clean)) == []


@CLEAN
def test_a_missing_compacted_segment_is_damage(clean: bool) -> None:
    topic = compacted(clean)
    segments = list(topic.log.segments)
    for nth in range(1, len(segments) - 1):
        files = topic.files
        assert isinstance(files, MemoryFiles)
        content = files.read(segments[nth].path(LOG))
        files.remove(segments[nth].path(LOG))
        expected = [(segments[nth].base_offset, segments[nth + 1].base_offset)]
        assert missing(reopen_compacted(topic, clean)) == expected
        files.write_atomic(segments[nth].path(LOG), content)
        segments[nth].mark_compacted(segments[nth + 1].base_offset)


@CLEAN
def test_a_compacted_segment_that_was_truncated_is_damage(clean: bool) -> None:
    topic = compacted(clean)
    segments = list(topic.log.segments)
    file = topic.files.open(segments[1].path(LOG))
    file.truncate(file.size() // 2)
    ((first, behind),) = missing(reopen_compacted(topic, clean))
    assert segments[1].base_offset <= first < behind == segments[2].base_offset


def test_a_marker_of_release_0_1_0_allows_gaps_behind_its_segment() -> None:
    topic = compacted(clean=True)
    segments = list(topic.log.segments)
    topic.files.write_atomic(segments[0].path(COMPACTED), b"")
    topic.files.remove(segments[1].path(LOG))
    assert missing(reopen_compacted(topic, True)) == []


def test_a_compacted_segment_that_was_cut_and_grows_again_has_its_new_end_recorded() -> None:
    """A follower of a compacted leader has gaps in its segments; a truncation makes one the last again."""
    topic = compacted(clean=True)
    topic.reopen()
    segments = list(topic.log.segments)
    topic.log.truncate_to(segments[1].base_offset + 1)
    assert topic.log.segments.active.coverage() is None
    topic.put((b"a", b"b"))
    topic.log.roll()
    topic.put((b"a", b"c"))
    flush(topic.log)
    topic.log.close(clean=False)
    again = reopen_compacted(topic, False)
    assert missing(again) == []
    topic.log = again
    again.close()
    sealed = list(again.segments)[-2]
    assert sealed.coverage() == (again.segments.active.base_offset, sealed.size)


def closed_directory(files: MemoryFiles, tamper: Callable[[Log], None]) -> None:
    """A data directory with a log of three segments that was closed in good order after `tamper`."""
    directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
    directory.create_partitions([StoredPartition("t", 0, TopicId(bytes(16)))])
    log = directory.open_log("t", 0, LogConfig(), CLOCK)
    for nth in range(6):
        if nth and nth % 2 == 0:
            log.roll()
        log.append(batch(), 0)
    tamper(log)
    directory.close()


def test_damage_is_remembered_over_a_clean_restart_until_the_bytes_are_sound() -> None:
    files = MemoryFiles()
    content = b""

    def rot(log: Log) -> None:
        nonlocal content
        content = log.segments.active.open_file().pread(log.segments.active.size, 0)
        note_rot(log, 1)
        log.segments.active.open_file().pwrite(b"?", len(content) - 1)

    closed_directory(files, rot)
    for _ in range(2):
        directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
        log = directory.open_log("t", 0, LogConfig(), CLOCK)
        assert missing(log) == [(5, 6)]
        with pytest.raises(CorruptLog):
            log.read(5, 100, upper=6)
        directory.close()
    files.open(segment_path(4)).pwrite(content, 0)
    directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
    assert missing(directory.open_log("t", 0, LogConfig(), CLOCK)) == []


def test_a_hole_is_remembered_though_the_files_are_those_of_the_last_shutdown() -> None:
    files = MemoryFiles()
    closed_directory(files, lambda log: None)
    remove(files, 2)
    for _ in range(3):
        directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
        assert missing(directory.open_log("t", 0, LogConfig(), CLOCK)) == [(2, 4)]
        directory.close()


def test_a_log_that_matches_its_manifest_is_opened_without_reading_sealed_segments() -> None:
    class Watched(MemoryFiles):
        opened: ClassVar[list[str]] = []

        def open(self, path: str, *, create: bool = False) -> File:
            self.opened.append(path)
            return super().open(path, create=create)

    files = Watched()
    closed_directory(files, lambda log: None)
    directory = DataDirectory.open(files, "/data", cluster_id="c", node_id=1, rng=Tokens())
    Watched.opened.clear()
    directory.open_log("t", 0, LogConfig(), CLOCK)
    assert not {segment_path(0), segment_path(2)} & set(Watched.opened)


@CLEAN
def test_a_changed_length_in_the_last_batch_of_a_segment_does_not_shorten_it(clean: bool) -> None:
    """The bytes are all there. A shorter segment would have no room for a sound copy of the batch."""
    files = MemoryFiles()
    end_offset = rolled(files, clean)
    file = files.open(segment_path(4))
    data = file.pread(file.size(), 0)
    last = [position for position, _ in iter_batches(data)][-1]
    length = int.from_bytes(data[last + 8 : last + 12], "big")
    file.pwrite((length - 1).to_bytes(4, "big"), last + 8)
    log = reopened(files, clean, end_offset)
    segment = log.segments.holding(4)
    assert (missing(log), segment.size) == ([], len(data))
    sealed = describe(log, segment)
    assert sealed is not None
    (damage,) = scrub(files, sealed, Piece(0, 0), 1 << 20).damage
    assert (damage.first_offset, damage.next_offset) == (7, 8)
    assert (damage.position, damage.size) == (last, len(data) - last)
