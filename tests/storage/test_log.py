from __future__ import annotations

from typing import Any

import pytest

from penstock.model.errors import CorruptMessage, OffsetOutOfRange
from penstock.records.batch import read_header
from penstock.records.record import iter_batches
from penstock.storage.log import AppendOrigin, Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.segment_files import LOG
from tests.storage.logs import NOW_MS, PATH, StillClock, batch, idempotent, open_log, records, stored


def filled(counts: list[int], **settings: Any) -> Log:
    """A log with a batch of each of these sizes, all of it committed."""
    log = open_log(**settings)
    for count in counts:
        log.append(batch(count), 0)
    log.advance_high_watermark(log.end_offset)
    return log


def bases(data: bytes) -> list[int]:
    return [header.base_offset for _, header in iter_batches(data)]


def test_a_new_log_holds_no_descriptor() -> None:
    log = open_log(MemoryFiles())
    assert [segment.file for segment in log.segments] == [None]


def test_offsets_and_epoch_are_stamped_in_place_and_the_bytes_come_back() -> None:
    log = open_log()
    first, second = batch(3), batch(2)
    assert log.append(first, 4)[:2] == (0, 2)
    assert log.append(second, 5)[:2] == (3, 4)
    assert log.end_offset == 5
    assert read_header(second)[:3] == (3, len(second) - 12, 5)
    assert stored(log) == bytes(first) + bytes(second)
    assert [record.offset for record in records(log)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("offset", range(3, 8))
def test_a_fetch_inside_a_batch_returns_the_batch(offset: int) -> None:
    log = filled([3, 5, 2])
    found = log.read(offset, 1, upper=10)
    assert found is not None
    assert bases(found.read()) == [3]


def test_a_fetch_at_the_end_finds_nothing_and_beyond_it_is_out_of_range() -> None:
    log = filled([3])
    assert log.read(3, 100, upper=3) is None
    with pytest.raises(OffsetOutOfRange):
        log.read(4, 100, upper=3)
    with pytest.raises(OffsetOutOfRange):
        log.read(-1, 100, upper=3)


def test_nothing_is_read_from_the_upper_bound_on() -> None:
    log = filled([2, 2, 2])
    assert log.read(2, 1000, upper=2) is None
    bounded = log.read(0, 1000, upper=4)
    assert bounded is not None
    assert bases(bounded.read()) == [0, 2]


def test_an_upper_bound_inside_a_batch_leaves_the_batch_out() -> None:
    log = filled([2, 4])
    bounded = log.read(0, 1000, upper=4)
    assert bounded is not None
    assert bases(bounded.read()) == [0]
    assert log.read(2, 1000, upper=4) is None


def test_the_first_batch_is_whole_however_small_the_limit() -> None:
    log = filled([5, 5])
    size = len(batch(5))
    whole = log.read(0, 10, upper=10)
    strict = log.read(0, 10, upper=10, at_least_one=False)
    assert whole is not None and len(whole) == size
    assert strict is None
    assert log.read(0, 0, upper=10, at_least_one=False) is None


@pytest.mark.parametrize("recent", [True, False])
def test_a_first_batch_that_does_not_fit_is_left_out_and_never_cut(recent: bool) -> None:
    log = filled([5] * 4)
    size = len(batch(5))
    if not recent:
        log.segments.active.recent.clear()
    found = {
        limit: log.read(offset, limit, upper=20, at_least_one=False)
        for offset in (0, 7, 15)
        for limit in (1, size - 1)
    }
    assert set(found.values()) == {None}
    fitting = log.read(0, size, upper=20, at_least_one=False)
    assert fitting is not None and len(fitting) == size


def test_a_read_among_the_latest_batches_ends_with_a_whole_one() -> None:
    """What is sent of a batch that the limit cuts is sent for nothing."""
    log = filled([5] * 4)
    size = len(batch(5))
    latest = [log.read(5, limit, upper=20) for limit in (size, size + 10, 2 * size, 3 * size - 1)]
    assert [len(r) if r else None for r in latest] == [size, size, 2 * size, 2 * size]
    log.segments.active.recent.clear()
    cut = log.read(0, size + 10, upper=20)
    assert cut is not None and len(cut) == size + 10


def test_one_read_stays_within_one_segment_and_reads_go_on_in_the_next() -> None:
    log = filled([1] * 20, segment_bytes=4 * len(batch()))
    assert len(log.segments) == 5
    found = log.read(2, 1 << 20, upper=20)
    assert found is not None
    assert bases(found.read()) == [2, 3]
    assert [record.offset for record in records(log)] == list(range(20))


@pytest.mark.parametrize("interval", [0, 100, 4096])
def test_every_offset_is_found_through_the_index(interval: int) -> None:
    log = filled([1, 2, 3] * 30, index_interval_bytes=interval)
    for offset in range(log.end_offset):
        found = log.read(offset, 1, upper=log.end_offset)
        assert found is not None
        header = read_header(found.read())
        assert header.base_offset <= offset <= header.last_offset


def test_a_batch_that_was_never_indexed_in_memory_is_found_after_a_restart() -> None:
    files = MemoryFiles()
    log = open_log(files, index_interval_bytes=100)
    for _ in range(50):
        log.append(batch(2), 0)
    log.close()
    again = open_log(files, clean=True, index_interval_bytes=100)
    assert again.recovery.clean
    assert again.recovery.segments_walked == 0
    assert [record.offset for record in records(again)] == list(range(100))
    assert again.append(batch(), 0).base_offset == 100


def test_an_empty_log_has_nothing() -> None:
    log = open_log()
    assert (log.log_start_offset, log.high_watermark, log.end_offset, log.size) == (0, 0, 0, 0)
    assert log.read(0, 100, upper=0) is None
    assert log.last_stable_offset == 0


def test_the_high_watermark_follows_and_never_goes_back() -> None:
    log = open_log()
    log.append(batch(5), 0)
    assert log.high_watermark == 0
    log.advance_high_watermark(3)
    log.advance_high_watermark(1)
    assert log.high_watermark == 3
    log.advance_high_watermark(9)
    assert log.high_watermark == 5


def test_the_offset_behind_a_read_comes_from_the_index() -> None:
    log = filled([2] * 30, index_interval_bytes=0, segment_bytes=10 * len(batch(2)))
    for offset in (0, 7, 20, 41):
        for max_bytes in (1, 250, 1 << 20):
            found = log.read(offset, max_bytes, upper=60)
            assert found is not None
            *_, (_, last) = iter_batches(found.read())
            behind = log.offset_behind(offset, found)
            assert last.next_offset <= behind <= last.next_offset + 4


# -- rolling


def test_a_segment_rolls_when_it_would_outgrow_its_size() -> None:
    size = len(batch())
    log = filled([1] * 3, segment_bytes=2 * size)
    assert [(s.base_offset, s.size) for s in log.segments] == [(0, 2 * size), (2, size)]
    assert log.size == 3 * size


def test_a_segment_rolls_by_the_time_between_its_first_batch_and_the_new_one() -> None:
    log = open_log(segment_ms=1000)
    log.append(batch(timestamp=NOW_MS), 0)
    log.append(batch(timestamp=NOW_MS + 1000), 0)
    assert len(log.segments) == 1
    log.append(batch(timestamp=NOW_MS + 1001), 0)
    assert [s.base_offset for s in log.segments] == [0, 2]


def test_a_segment_whose_first_batch_is_damaged_rolls_at_the_next_append() -> None:
    """A flipped bit moves its timestamp by centuries: the segment would never be sealed, nor scrubbed."""
    files = MemoryFiles()
    log = open_log(files, segment_ms=1000)
    log.append(batch(timestamp=NOW_MS), 0)
    log.close()
    file = files.open(log.segments.active.path(LOG))
    position = 35
    assert file.pread(8, position) == NOW_MS.to_bytes(8, "big"), "the largest timestamp lies there"
    file.pwrite(bytes([file.pread(1, position)[0] ^ 0x10]), position)
    file.close()
    log = open_log(files, clean=True, segment_ms=1000)
    log.append(batch(timestamp=NOW_MS), 0)
    assert [s.base_offset for s in log.segments] == [0, 1]


def test_a_segment_without_timestamps_rolls_by_the_clock() -> None:
    clock = StillClock()
    log = open_log(clock=clock, segment_ms=1000)
    log.append(batch(timestamp=-1), 0)
    clock.ms += 1000
    log.append(batch(timestamp=-1), 0)
    assert len(log.segments) == 1
    clock.ms += 1
    log.append(batch(timestamp=-1), 0)
    assert len(log.segments) == 2


def test_a_compacted_topic_rolls_early_enough_for_its_compaction_lag() -> None:
    log = open_log(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=500)
    log.append(batch(timestamp=NOW_MS), 0)
    log.append(batch(timestamp=NOW_MS + 501), 0)
    assert len(log.segments) == 2


def test_a_segment_rolls_when_its_index_is_full() -> None:
    log = open_log(index_interval_bytes=0, segment_index_bytes=12 * 4)
    for i in range(20):
        log.append(batch(timestamp=NOW_MS + i), 0)
    assert len(log.segments) > 3
    for segment in log.segments:
        assert len(segment.times()) <= 4


def test_a_segment_rolls_when_an_offset_would_not_fit_its_indexes() -> None:
    log = open_log()
    far = 2**31
    log.append_replicated(batch(base_offset=0))
    log.append_replicated(shifted(batch(), far))
    log.append_replicated(shifted(batch(), far + 5))
    assert [s.base_offset for s in log.segments] == [0, far]
    assert [record.offset for record in records(log)] == [0, far, far + 5]


def shifted(plain: memoryview, offset: int) -> memoryview:
    plain[:8] = offset.to_bytes(8, "big")
    return plain


def test_rolling_an_empty_segment_does_nothing() -> None:
    log = filled([1])
    log.roll()
    log.roll()
    assert [s.base_offset for s in log.segments] == [0, 1]


def test_a_new_config_holds_from_the_next_append_on() -> None:
    log = filled([1] * 4)
    log.reconfigure(log.config.__class__(segment_bytes=len(batch())))
    log.append(batch(), 0)
    log.append(batch(), 0)
    assert [s.base_offset for s in log.segments] == [0, 4, 5]


def test_jitter_spreads_rolls() -> None:
    class Half:
        def token(self, size: int) -> bytes:
            return bytes(size)

        def uniform(self, low: float, high: float) -> float:
            return (low + high) / 2

    files = MemoryFiles()
    log = Log.open(
        files,
        PATH,
        open_log(segment_ms=1000, segment_jitter_ms=400).config,
        StillClock(),
        clean=False,
        rng=Half(),
    )
    log.append(batch(timestamp=NOW_MS), 0)
    log.append(batch(timestamp=NOW_MS + 800), 0)
    assert len(log.segments) == 1
    log.append(batch(timestamp=NOW_MS + 801), 0)
    assert len(log.segments) == 2


# -- replication


def test_a_follower_takes_offsets_and_epochs_as_they_are() -> None:
    leader, follower = open_log(), open_log()
    leader.append(batch(3), 1)
    leader.append(idempotent(0, 2), 2)
    follower.append_replicated(stored(leader))
    assert stored(follower) == stored(leader)
    assert follower.leader_epochs.epochs == [1, 2]
    assert follower.leader_epochs.starts == [0, 3]
    assert follower.producers.states[7].last_sequence == 1


def test_a_follower_may_skip_offsets_but_not_repeat_them() -> None:
    log = open_log()
    log.append_replicated(shifted(batch(), 10))
    assert log.end_offset == 11
    with pytest.raises(Exception, match="cannot follow"):
        log.append_replicated(shifted(batch(), 10))
    assert log.end_offset == 11


def test_an_empty_fetch_changes_nothing() -> None:
    log = filled([1])
    log.append_replicated(b"")
    assert log.end_offset == 1


def test_the_newest_batch_of_a_client_is_cached_until_the_next_one() -> None:
    log = open_log()
    first = bytes(batch(2))
    log.append(memoryview(bytearray(first)), 0)
    newest = log.newest(0)
    assert newest == stored(log)
    assert log.newest(1) is None, "a batch is found by its first offset"
    log.append(batch(1), 0)
    assert (log.newest(0), log.newest(2)) == (None, stored(log)[len(first) :])


def test_large_batches_and_those_of_brokers_are_not_cached() -> None:
    log = open_log()
    log.append(batch(200), 0)
    assert log.newest(0) is None
    log.append(batch(1), 0, AppendOrigin.COORDINATOR)
    assert log.newest(200) is None


def placed(data: memoryview, offset: int) -> memoryview:
    """A batch as a leader has it, from `offset` on."""
    data[:8] = offset.to_bytes(8, "big")
    return data


def test_an_empty_replica_takes_a_batch_that_its_start_lies_within() -> None:
    """The leader's log starts there after DeleteRecords: the batch that holds the offset comes whole."""
    log = open_log()
    log.reset_to(7)
    log.append_replicated(placed(batch(3), 5))
    assert (log.log_start_offset, log.end_offset) == (5, 8)
    with pytest.raises(CorruptMessage, match="a batch at offset 6 cannot follow 7"):
        log.append_replicated(placed(batch(3), 6))


@pytest.mark.parametrize("base", [4, 8])
def test_an_empty_replica_takes_no_batch_that_ends_before_its_start_nor_one_twice(base: int) -> None:
    log = open_log()
    log.reset_to(7)
    twice = bytes(placed(batch(3), base)) * 2
    with pytest.raises(CorruptMessage, match="cannot follow"):
        log.append_replicated(memoryview(twice))
    assert (log.log_start_offset, log.end_offset) == (7, 7)


@pytest.mark.parametrize("how", ["truncate", "reset", "delete"])
def test_truncated_batches_are_not_cached(how: str) -> None:
    """A leader that was deposed, and got another batch in the place of its own, must not serve its own."""
    log = open_log()
    log.append(batch(1), 0)
    log.append(batch(1), 0)
    assert log.newest(1) is not None
    if how == "truncate":
        log.truncate_to(1)
        log.append_replicated(placed(batch(1, value=b"another"), 1))
    elif how == "reset":
        log.reset_to(1)
        log.append_replicated(placed(batch(1, value=b"another"), 1))
    else:
        log.advance_high_watermark(2)
        log.delete_records(2)
    assert log.newest(1) is None
