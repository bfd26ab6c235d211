"""What a log lets go of at its far end, and what it cuts at its near end."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from penstock.model.errors import OffsetOutOfRange
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.removal import Removal
from penstock.storage.scan import ColdPages
from penstock.storage.segment_files import TIME_INDEX, file_name
from penstock.testing.disk import FaultyDisk
from tests.storage.logs import (
    NOW_MS,
    PATH,
    StillClock,
    batch,
    flush,
    idempotent,
    latest_record,
    open_log,
    records,
    stored,
)

SIZE = len(batch())


def segmented(segments: int, files: MemoryFiles | None = None, **settings: Any) -> Log:
    """Segments of two batches each, the last one of one; timestamps rise by 100 per batch."""
    log = open_log(files, segment_bytes=2 * SIZE, **settings)
    for i in range(2 * segments - 1):
        log.append(batch(timestamp=NOW_MS + 100 * i), 0)
    log.advance_high_watermark(log.end_offset)
    assert len(log.segments) == segments
    return log


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_is_deleted_when_its_youngest_record_is_too_old() -> None:
    log = segmented(4, retention_ms=1000)
    assert [r.base_offset for r in log.retention.apply(NOW_MS + 300 + 1000)] == [0]
    assert bases(log) == [2, 4, 6]
    log.retention.apply(NOW_MS + 300 + 1001)
    assert (bases(log), log.log_start_offset) == ([4, 6], 4)
    with pytest.raises(OffsetOutOfRange):
        log.read(3, 100, upper=7)


def test_the_last_segment_is_rolled_when_it_is_too_old_itself() -> None:
    log = segmented(2, retention_ms=1000)
    removed = log.retention.apply(NOW_MS + 10_000)
    assert [removal.base_offset for removal in removed] == [0, 2]
    assert (bases(log), log.log_start_offset, log.end_offset) == ([3], 3, 3)
    assert log.append(batch(), 0).base_offset == 3


def test_an_empty_last_segment_stays() -> None:
    log = segmented(1, retention_ms=1000)
    log.retention.apply(NOW_MS + 10_000)
    assert bases(log) == [1]
    assert log.retention.apply(NOW_MS + 20_000) == []
    assert bases(log) == [1]


def test_records_without_timestamps_age_by_when_they_were_written() -> None:
    clock = StillClock()
    log = open_log(MemoryFiles(clock), clock=clock, retention_ms=1000)
    log.append(batch(timestamp=-1), 0)
    log.advance_high_watermark(1)
    assert log.retention.apply(clock.ms + 1000) == []
    assert log.retention.apply(clock.ms + 1001)


def test_only_whole_segments_above_the_size_are_deleted() -> None:
    log = segmented(4, retention_bytes=3 * SIZE, retention_ms=-1)
    log.retention.apply(NOW_MS)
    assert bases(log) == [4, 6]
    exact = segmented(4, retention_bytes=4 * SIZE, retention_ms=-1)
    exact.retention.apply(NOW_MS)
    assert bases(exact) == [2, 4, 6]


def test_nothing_is_deleted_without_a_limit_or_without_the_policy() -> None:
    forever = segmented(3, retention_ms=-1)
    compacted = segmented(3, retention_ms=1, retention_bytes=1, cleanup_policy=frozenset({"compact"}))
    assert forever.retention.apply(NOW_MS * 2) == []
    assert compacted.retention.apply(NOW_MS * 2) == []


def test_nothing_above_the_high_watermark_is_deleted() -> None:
    log = open_log(segment_bytes=2 * SIZE, retention_ms=1000)
    for _ in range(6):
        log.append(batch(), 0)
    log.advance_high_watermark(3)
    log.retention.apply(NOW_MS * 2)
    assert bases(log) == [2, 4]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_deleted_records_are_gone_at_once_and_their_segments_at_the_next_round(policy: str) -> None:
    log = segmented(3, cleanup_policy=frozenset({policy}))
    assert log.delete_records(3) == 3
    assert log.log_start_offset == log.local_log_start_offset == 3
    assert [record.offset for record in records(log)] == [3, 4]
    assert bases(log) == [0, 2, 4]
    with pytest.raises(OffsetOutOfRange):
        log.read(2, 100, upper=5)
    log.retention.apply(NOW_MS)
    assert (bases(log), log.log_start_offset) == ([2, 4], 3)


def test_records_can_be_deleted_up_to_the_high_watermark_and_not_twice() -> None:
    log = segmented(2)
    assert log.delete_records(3) == 3
    assert log.delete_records(1) == 3
    for offset in (4, -1):
        with pytest.raises(OffsetOutOfRange):
            log.delete_records(offset)


def test_files_are_out_of_the_way_at_once_and_deleted_later() -> None:
    files = MemoryFiles()
    log = segmented(3, files, retention_ms=1000)
    slow_reader = log.read(0, 1000, upper=5)
    before = slow_reader.read() if slow_reader else b""
    removed = log.retention.apply(NOW_MS + 1101)
    gone = [name for name in files.listdir(log.path) if name.startswith("0" * 20)]
    assert gone and all(name.endswith(".deleted") for name in gone)
    for removal in removed:
        removal.delete()
        removal.delete()
    assert not [name for name in files.listdir(log.path) if name.startswith("0" * 20)]
    assert slow_reader is not None
    assert slow_reader.read() == before


def test_segments_being_deleted_at_a_crash_are_gone_after_it() -> None:
    files = MemoryFiles()
    log = segmented(3, files, retention_ms=1000)
    log.retention.apply(NOW_MS + 1101)
    again = open_log(files)
    assert bases(again) == [2, 4]
    assert not [name for name in files.listdir(log.path) if name.endswith(".deleted")]


def test_epochs_go_with_their_segments() -> None:
    log = open_log(retention_ms=1000, segment_bytes=SIZE)
    for epoch in range(4):
        log.append(batch(), epoch)
    log.advance_high_watermark(4)
    log.delete_records(2)
    log.retention.apply(NOW_MS)
    assert log.leader_epochs.epochs == [2, 3]
    assert log.end_offset_for_epoch(2) == (2, 3)


# -- truncation


@pytest.mark.parametrize(("offset", "left"), [(9, 9), (8, 8), (7, 6), (6, 6), (5, 4), (4, 4), (1, 0), (0, 0)])
def test_truncation_cuts_every_batch_that_reaches_the_offset(offset: int, left: int) -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=2 * len(batch(2)), index_interval_bytes=0)
    for i in range(4):
        log.append(batch(2, timestamp=NOW_MS + i), i)
    log.append(batch(timestamp=NOW_MS + 9), 4)
    whole = stored(log)
    log.advance_high_watermark(9)
    flush(log)
    log.truncate_to(offset)
    assert (log.end_offset, log.high_watermark, log.recovery_point) == (left, left, left)
    assert whole.startswith(stored(log))
    assert len(records(log)) == left
    log.append(batch(timestamp=NOW_MS + 50), 9)
    assert log.end_offset_for_epoch(9) == (9, left + 1)
    again = open_log(files, recovery_point=left)
    assert [r.offset for r in records(again)] == list(range(left + 1))
    latest = latest_record(again)
    assert latest is not None
    assert latest[:2] == (NOW_MS + 50, left)


def test_truncation_rolls_producers_back() -> None:
    log = open_log(segment_bytes=300)
    for i in range(10):
        log.append(idempotent(i), 0)
    log.truncate_to(4)
    assert log.producers.states[7].last_sequence == 3
    assert log.append(idempotent(4), 0).base_offset == 4


def test_truncation_beyond_the_end_does_nothing() -> None:
    log = segmented(2)
    log.truncate_to(3)
    log.truncate_to(99)
    assert log.end_offset == 3


def test_a_flush_that_was_overtaken_by_a_truncation_does_not_count() -> None:
    log = open_log()
    log.append(batch(3), 0)
    plan = log.flush_plan()
    log.truncate_to(0)
    log.append(batch(3), 1)
    plan.sync()
    log.flushed(plan)
    assert log.recovery_point == 0


def test_the_largest_timestamp_is_found_again_after_a_truncation() -> None:
    log = open_log(index_interval_bytes=10_000)
    for stamp in (5, 9, 7):
        log.append(batch(timestamp=NOW_MS + stamp), 0)
    log.truncate_to(2)
    latest = latest_record(log)
    assert latest is not None
    assert latest[:2] == (NOW_MS + 9, 1)
    log.truncate_to(1)
    assert log.segments.active.max_timestamp() == NOW_MS + 5


def test_a_reset_starts_over_at_any_offset() -> None:
    files = MemoryFiles()
    log = segmented(3, files)
    log.append(idempotent(0), 0)
    log.reset_to(100)
    assert (log.log_start_offset, log.high_watermark, log.end_offset) == (100, 100, 100)
    assert not log.producers.states
    assert log.append(batch(2), 3).base_offset == 100
    assert [record.offset for record in records(open_log(files))] == [100, 101]


def test_retention_does_not_wait_for_a_disk_where_it_must_not() -> None:
    disk = FaultyDisk(Random(0))
    segmented(4, disk, retention_ms=1000).close()
    log = open_log(disk, clean=True, segment_bytes=2 * SIZE, retention_ms=1000)
    log.advance_high_watermark(log.end_offset)
    disk.evict()
    removed: list[Removal] = []
    waits = 0
    while not removed:
        try:
            removed = log.retention.apply(NOW_MS + 300 + 1001, cached_only=True)
        except ColdPages as cold:
            waits += 1
            cold.warm()
    assert waits
    assert [removal.base_offset for removal in removed] == [0, 2]


def test_a_log_knows_whether_retention_would_keep_any_of_it() -> None:
    log = open_log(retention_ms=1000)
    assert not log.retention.has_unexpired(NOW_MS)
    log.append(batch(), 0)
    log.roll()
    assert log.retention.has_unexpired(NOW_MS + 1000)
    assert not log.retention.has_unexpired(NOW_MS + 1001)
    log.append(batch(timestamp=NOW_MS + 500), 0)
    assert log.retention.has_unexpired(NOW_MS + 1001)
    assert not log.retention.has_unexpired(NOW_MS + 1501)
    assert log.retention.has_unexpired(None), "the time is not known"
    assert len(log.segments) == 2, "nothing was removed"


@pytest.mark.parametrize("cached_only", [False, True])
@pytest.mark.parametrize("byte", range(12))
def test_a_changed_time_index_makes_no_segment_too_old(byte: int, cached_only: bool) -> None:
    """The time index has no checksum: what it says is compared with the batches before anything goes."""
    files = MemoryFiles()
    log = segmented(3, files, retention_ms=1000)
    flush(log)
    log.close()
    index = files.open(f"{PATH}/{file_name(0)}{TIME_INDEX}")
    at = index.size() - 12 + byte
    index.pwrite(bytes([index.pread(1, at)[0] ^ 0x81]), at)
    log = open_log(files, clean=True, segment_bytes=2 * SIZE, retention_ms=1000)
    log.advance_high_watermark(log.end_offset)
    assert retained(log, NOW_MS + 1000, cached_only) == [0, 2, 4]


def retained(log: Log, now_ms: int, cached_only: bool) -> list[int]:
    """The segments that are left; in a worker thread, what is not in memory is read before."""
    for _ in range(5):
        try:
            log.retention.apply(now_ms, cached_only=cached_only)
            break
        except ColdPages as cold:
            cold.warm()
    return bases(log)


def reopened(log: Log, files: MemoryFiles, **settings: Any) -> Log:
    flush(log)
    again = open_log(files, segment_bytes=2 * SIZE, **settings)
    again.advance_high_watermark(again.end_offset)
    return again


def test_a_survey_counts_segments_that_were_too_old_already() -> None:
    files = MemoryFiles()
    log = reopened(segmented(4, files, retention_ms=1000), files, retention_ms=1000)
    newest = NOW_MS + 600
    assert log.retention.survey(NOW_MS + 300 + 1001) == (7 * SIZE, 4 * SIZE, newest)
    assert log.retention.survey(NOW_MS + 10_000) == (7 * SIZE, 7 * SIZE, newest)
    assert log.retention.survey(NOW_MS) == (7 * SIZE, 0, newest)


def test_a_survey_leaves_out_segments_that_are_newer_than_the_start() -> None:
    log = segmented(4, retention_ms=1000)
    assert log.retention.survey(NOW_MS + 10_000).overdue == 0


def test_a_survey_leaves_out_a_log_whose_retention_was_changed() -> None:
    """A user purges a topic by a short retention."""
    files = MemoryFiles()
    log = reopened(segmented(4, files, retention_ms=1000), files, retention_ms=1000)
    log.reconfigure(replace(log.config, segment_bytes=100))
    assert log.retention.survey(NOW_MS + 10_000).overdue == 7 * SIZE
    log.reconfigure(replace(log.config, retention_ms=999))
    assert log.retention.survey(NOW_MS + 10_000).overdue == 0


@pytest.mark.parametrize("settings", [{"retention_ms": -1}, {"cleanup_policy": ("compact",)}])
def test_a_survey_leaves_out_logs_without_retention_by_time(settings: dict[str, Any]) -> None:
    files = MemoryFiles()
    log = reopened(segmented(4, files), files, **settings)
    assert log.retention.survey(NOW_MS + 10_000) == (0, 0, -1)
