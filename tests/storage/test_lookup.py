"""ListOffsets as far as a log goes: by timestamp, by the largest timestamp, by leader epoch."""

from __future__ import annotations

import pytest

from penstock.records.codecs import Codec
from penstock.records.record import Record, build_batch, open_batch, seal
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from tests.storage.logs import NOW_MS, StillClock, batch, latest_record, open_log, record_at_or_after


def stamped(log: Log, *stamps: int, codec: Codec = Codec.NONE, epoch: int = 0) -> None:
    """Append one batch of records with these timestamps."""
    records = [Record(i, stamp, b"k", b"v") for i, stamp in enumerate(stamps)]
    log.append(memoryview(bytearray(build_batch(records, codec=codec))), epoch)


def at(log: Log, timestamp: int) -> tuple[int, int] | None:
    found = record_at_or_after(log, timestamp)
    return found and found[:2]


@pytest.mark.parametrize("codec", Codec)
def test_the_first_record_at_or_after_a_timestamp_is_found_inside_its_batch(codec: Codec) -> None:
    log = open_log()
    stamped(log, 10, 30, 20, codec=codec)
    stamped(log, 25, 40, codec=codec)
    assert at(log, 0) == (10, 0)
    assert at(log, 10) == (10, 0)
    assert at(log, 11) == (30, 1)
    assert at(log, 30) == (30, 1)
    assert at(log, 31) == (40, 4)
    assert at(log, 41) is None


def test_the_leader_epoch_of_the_record_comes_along() -> None:
    log = open_log()
    stamped(log, 10, epoch=3)
    stamped(log, 20, epoch=5)
    found = record_at_or_after(log, 15)
    assert found is not None
    assert found.leader_epoch == 5


def test_timestamps_that_do_not_rise_still_find_the_first() -> None:
    log = open_log(index_interval_bytes=0)
    for stamp in (50, 10, 60, 20, 70):
        stamped(log, stamp)
    assert at(log, 15) == (50, 0)
    assert at(log, 55) == (60, 2)
    assert at(log, 65) == (70, 4)


def test_a_lookup_goes_through_all_segments_and_a_restart_changes_nothing() -> None:
    files = MemoryFiles()
    log = open_log(files, segment_bytes=400, index_interval_bytes=100)
    for i in range(40):
        stamped(log, 1000 + 10 * i)
    log.close()
    for reopened in (log, open_log(files, clean=True), open_log(files, clean=False)):
        assert len(reopened.segments) > 4
        for i in range(40):
            assert at(reopened, 1000 + 10 * i - 5) == (1000 + 10 * i, i)
        assert at(reopened, 5000) is None


def test_records_before_the_log_start_are_not_found() -> None:
    log = open_log()
    stamped(log, 10, 20, 30)
    log.advance_high_watermark(3)
    log.delete_records(2)
    assert at(log, 0) == (30, 2)


def test_with_append_time_all_records_of_a_batch_have_the_time_of_the_append() -> None:
    clock = StillClock()
    log = open_log(clock=clock, message_timestamp_type="LogAppendTime")
    stamped(log, 1, 2, 3)
    clock.ms += 100
    stamped(log, 1, 2, 3)
    assert at(log, NOW_MS) == (NOW_MS, 0)
    assert at(log, NOW_MS + 1) == (NOW_MS + 100, 3)
    latest = latest_record(log)
    assert latest is not None
    assert latest[:2] == (NOW_MS + 100, 3)


def test_the_largest_timestamp_is_that_of_the_first_record_that_has_it() -> None:
    log = open_log(index_interval_bytes=0)
    stamped(log, 10, 90, 20)
    log.roll()
    stamped(log, 90, 30)
    stamped(log, 40)
    latest = latest_record(log)
    assert latest is not None
    assert latest[:2] == (90, 1)


def test_an_empty_log_has_no_timestamps() -> None:
    log = open_log()
    assert record_at_or_after(log, 0) is None
    assert latest_record(log) is None


def test_records_without_timestamps_have_none_to_be_found_by() -> None:
    log = open_log()
    stamped(log, -1, -1)
    assert latest_record(log) is None
    assert record_at_or_after(log, 0) is None


def test_a_sealed_segment_knows_its_largest_timestamp_without_loading_its_index() -> None:
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=0)
    for stamp in (10, 50, 20):
        stamped(log, stamp)
    log.roll()
    log.close()
    segment = open_log(files, clean=True).segments.first
    assert segment.max_timestamp() == 50
    assert segment.index_entries == 0


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    """KIP-279: the largest epoch at or below the requested one, and where it ends."""
    log = open_log()
    for epoch, count in ((1, 3), (4, 2), (7, 1)):
        log.append(batch(count), epoch)
    answers = {epoch: log.end_offset_for_epoch(epoch) for epoch in (-1, 0, 1, 2, 4, 5, 7, 8)}
    assert answers == {
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 3),
        2: (1, 3),
        4: (4, 5),
        5: (4, 5),
        7: (7, 6),
        8: (-1, -1),
    }


def test_a_batch_whose_header_promises_too_much_is_passed_over() -> None:
    """By timestamp; among the largest, it counts with what its records have.

    A leader stores the true maximum; release 0.1.0 stored what the producer's header said.
    """
    log = open_log()
    for offset, largest in enumerate((50, 90)):
        header, data = open_batch(build_batch([Record(0, 10, b"k", b"v")]))
        log.append_replicated(seal(header._replace(base_offset=offset, max_timestamp=largest), data))
    assert at(log, 40) is None
    stamped(log, 45)
    assert at(log, 40) == (45, 2)
    latest = latest_record(log)
    assert latest is not None
    assert latest[:2] == (10, 1)
