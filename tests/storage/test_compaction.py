from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.codecs import Codec
from penstock.records.record import Record, build_batch, iter_records, seal
from penstock.storage.cleaner import KEY_BYTES, measure, plan
from penstock.storage.compaction import compact
from penstock.storage.config import LogConfig
from penstock.storage.scan import CorruptLog
from penstock.storage.swap import CLEANED
from tests.amounts import amount
from tests.storage.compacted import COMPACT, PATH, CompactedLog, latest
from tests.storage.logs import record_at_or_after

LONG = b"a key that is longer than its hash"


def test_the_latest_record_of_each_key_stays_at_its_offset() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"), (b"b", b"1"))
    topic.put((b"a", b"2"), (LONG, b"1"))
    topic.put((b"c", b"1"), (LONG, b"2"))
    result = topic.compact()
    assert result is not None
    assert [(r.offset, r.key, r.value) for r in topic.records()] == [
        (1, b"b", b"1"),
        (2, b"a", b"2"),
        (4, b"c", b"1"),
        (5, LONG, b"2"),
    ]
    assert result.clean_until == topic.log.end_offset == 6
    assert result.bytes_after < result.bytes_before


def test_clean_records_are_compared_with_new_ones() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"), (b"b", b"1"))
    topic.compact()
    topic.put((b"a", b"2"))
    topic.compact()
    assert topic.pairs() == [(b"b", b"1"), (b"a", b"2")]


def test_the_segment_that_is_written_to_is_left_alone() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"))
    topic.compact()
    topic.put((b"a", b"2"), (b"a", b"3"))
    assert not measure(topic.log, topic.clean_until, topic.clock.ms).dirty_bytes
    assert topic.pairs() == [(b"a", b"1"), (b"a", b"2"), (b"a", b"3")]


def test_small_segments_are_merged_up_to_the_segment_size() -> None:
    topic = CompactedLog()
    for i in range(6):
        topic.put((b"key %d" % i, b"x" * 100))
        topic.log.roll()
    size = topic.log.segments.first.size
    topic.log.reconfigure(replace(COMPACT, segment_bytes=3 * size + 10))
    result = topic.compact()
    assert result is not None
    assert [source.base_offset for source in result.segments] == [0, 3]
    assert [segment.base_offset for segment in topic.log.segments] == [0, 3, 6]
    assert len(topic.records()) == 6


def test_segments_are_merged_by_their_remaining_size() -> None:
    topic = CompactedLog()
    for i in range(6):
        topic.put((b"key %d" % (i // 3), b"x" * 100))
        topic.log.roll()
    topic.log.reconfigure(replace(COMPACT, segment_bytes=topic.log.segments.first.size))
    result = topic.compact()
    assert result is not None
    assert [source.base_offset for source in result.segments] == [0, 3]
    assert [record.offset for record in topic.records()] == [2, 5]


def test_segments_are_merged_up_to_the_limit_of_an_index() -> None:
    topic = CompactedLog(replace(COMPACT, index_interval_bytes=0))
    for i in range(4):
        for j in range(5):
            topic.put((b"key %d" % (5 * i + j), b"x"))
        topic.log.roll()
    # every batch but the first of a segment has an entry of eight bytes
    topic.log.reconfigure(replace(topic.config, segment_index_bytes=2 * 4 * 8))
    result = topic.compact()
    assert result is not None
    assert [source.base_offset for source in result.segments] == [0, 10]


def test_segments_are_not_merged_beyond_31_bits_of_offsets() -> None:
    topic = CompactedLog()
    for base in (0, 2**31 - 3, 2**31 + 3):
        batch = build_batch([Record(base, 1, b"%d" % base, b"1")], base_offset=base)
        topic.log.append_replicated(batch)
        topic.log.roll()
    topic.log.advance_high_watermark(topic.log.end_offset)
    result = topic.compact()
    assert result is not None
    assert [source.base_offset for source in result.segments] == [0, 2**31 - 2]
    topic.reopen(clean=False)
    assert [record.offset for record in topic.records()] == [0, 2**31 - 3, 2**31 + 3]


def test_tombstones_stay_until_delete_retention_after_they_became_clean() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"), (b"b", b"1"))
    topic.put((b"a", None))
    topic.put((b"z", b"1"))
    topic.compact()
    assert topic.pairs() == [(b"b", b"1"), (b"a", None), (b"z", b"1")]
    tombstone = topic.records()[1]
    topic.clock.ms += COMPACT.delete_retention_ms - 1
    topic.put((b"c", b"1"))
    topic.compact()
    assert tombstone in topic.records()
    topic.clock.ms += 1
    topic.put((b"c", b"2"))
    topic.compact()
    assert topic.pairs() == [(b"b", b"1"), (b"z", b"1"), (b"c", b"2")]


def test_a_new_tombstone_gets_its_own_time() -> None:
    topic = CompactedLog()
    topic.put((b"a", None))
    topic.compact()
    topic.clock.ms += 10 * COMPACT.delete_retention_ms
    topic.put((b"b", None), (b"c", b"1"))
    topic.compact()
    assert topic.pairs() == [(b"b", None), (b"c", b"1")]


def test_the_last_batch_of_a_pass_stays_though_it_be_empty() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"))
    topic.put((b"a", None))
    topic.compact()
    topic.clock.ms += 2 * COMPACT.delete_retention_ms
    topic.put((b"a", None))
    topic.compact()
    topic.clock.ms += 2 * COMPACT.delete_retention_ms
    topic.clean_until = None
    topic.compact()
    (last,) = topic.batches()
    assert len(last) == HEADER_SIZE
    assert read_header(last).next_offset == topic.log.end_offset == 3
    topic.reopen(clean=False)
    assert topic.log.end_offset == 3


def test_the_last_batch_of_each_producer_keeps_its_sequence() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"), producer_id=7, sequence=0)
    topic.put((b"a", b"2"), (b"a", b"3"), producer_id=7, sequence=1)
    topic.put((b"a", b"4"), (b"b", b"1"))
    topic.compact()
    assert topic.pairs() == [(b"a", b"4"), (b"b", b"1")]
    emptied = next(iter(topic.batches()))
    header = read_header(emptied)
    assert (header.record_count, header.base_offset, header.last_offset) == (0, 1, 2)
    for name in topic.files.listdir(PATH):
        if name.endswith(".snapshot"):
            topic.files.remove(f"{PATH}/{name}")
    topic.reopen(clean=False)
    assert topic.log.producers.states[7].last_sequence == 2


def test_batches_of_forgotten_producers_go() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"), producer_id=7, sequence=0)
    topic.put((b"a", b"2"))
    topic.log.producers.states.clear()
    topic.compact()
    assert [read_header(batch).base_offset for batch in topic.batches()] == [1]


def test_records_of_aborted_transactions_go_and_do_not_hide_others() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"), (b"b", b"1"))
    topic.put((b"a", b"aborted"), producer_id=7, sequence=0, transactional=True)
    marker = topic.end(7, committed=False)
    topic.put((b"b", b"2"), producer_id=8, sequence=0, transactional=True)
    topic.end(8, committed=True)
    topic.compact()
    assert topic.pairs() == [(b"a", b"1"), (b"b", b"2")]
    assert topic.log.aborted_transactions(0, topic.log.end_offset) == [(7, 2)]
    controls = [read_header(batch) for batch in topic.batches() if read_header(batch).is_control]
    assert [header.base_offset for header in controls] == [marker, marker + 2]


def test_a_marker_is_removed_when_its_records_have_been_gone_for_delete_retention() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"aborted"), producer_id=7, sequence=0, transactional=True)
    marker = topic.end(7, committed=False)
    topic.put((b"a", b"2"), producer_id=8, sequence=0, transactional=True)
    topic.end(8, committed=True)
    topic.log.producers.states.clear()

    def markers() -> list[int]:
        topic.put((b"z", b"1"))
        topic.compact()
        return [h.base_offset for h in map(read_header, topic.batches()) if h.is_control]

    assert markers() == [marker, marker + 2]
    assert topic.log.aborted_transactions(0, marker + 1) == [(7, 0)]
    # this pass meets no record of the aborted transaction: the clock starts
    assert markers() == [marker, marker + 2]
    assert topic.log.aborted_transactions(0, marker + 1) == []
    topic.clock.ms += COMPACT.delete_retention_ms
    assert markers() == [marker + 2]


def test_an_open_transaction_and_later_records_are_not_compacted() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"), (b"a", b"2"))
    topic.log.roll()
    topic.put((b"a", b"open"), producer_id=7, sequence=0, transactional=True)
    topic.log.roll()
    topic.put((b"a", b"3"))
    topic.compact()
    assert topic.pairs() == [(b"a", b"2"), (b"a", b"open"), (b"a", b"3")]
    assert topic.clean_until == 2


def test_a_pass_takes_as_many_keys_as_it_may_hold_and_the_next_goes_on() -> None:
    topic = CompactedLog()
    everything: list[Record] = []
    for i in range(10):
        everything += topic.put((b"%d" % (i % 4), b"%d" % i), (b"own %d" % i, b"x"))
    ends: list[int] = []
    while (result := topic.compact(keys_max=5)) is not None:
        assert latest(topic.records()) == latest(everything)
        ends.append(result.clean_until)
    assert ends == sorted(set(ends))
    assert len(ends) > 2
    assert ends[-1] == topic.log.end_offset
    assert len(topic.records()) == 14


def test_records_without_key_do_not_survive() -> None:
    topic = CompactedLog(LogConfig())
    topic.log.append(memoryview(bytearray(keyless())), 0)
    topic.log.advance_high_watermark(2)
    topic.compact()
    assert topic.pairs() == [(b"a", b"1")]


def keyless() -> bytes:
    return build_batch([Record(0, 1, None, b"x"), Record(1, 1, b"a", b"1")])


def test_records_that_cannot_be_read_stay_as_they_are() -> None:
    topic = CompactedLog(LogConfig(penstock_record_validation="header"))
    header = read_header(keyless())
    garbage = seal(header._replace(attributes=Codec.ZSTD), b"no zstd at all")
    topic.log.append(memoryview(bytearray(garbage)), 0)
    topic.log.advance_high_watermark(2)
    topic.put((b"a", b"1"), (b"a", b"2"))
    result = topic.compact()
    assert result is not None
    assert result.unreadable_batches == 1
    first, second = topic.batches()
    assert first[HEADER_SIZE:] == b"no zstd at all"
    assert [record.value for record in iter_records(second)] == [b"2"]


def test_a_damaged_batch_stops_the_pass_and_leaves_nothing_behind() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"))
    topic.put((b"a", b"2"))
    topic.log.roll()
    file = topic.files.open(f"{PATH}/{0:020d}.log")
    file.pwrite(b"\xff", HEADER_SIZE + 3)
    planned = plan(measure(topic.log, None, topic.clock.ms), topic.clock.ms, KEY_BYTES * 100)
    with pytest.raises(CorruptLog, match="byte 0 is damaged"):
        compact(topic.files, planned)
    assert not topic.files.exists(f"{PATH}/{CLEANED}")


def test_debris_of_a_pass_that_was_killed_does_not_matter() -> None:
    topic = CompactedLog()
    topic.put((b"a", b"1"), (b"a", b"2"))
    topic.files.makedirs(f"{PATH}/{CLEANED}")
    topic.files.write_atomic(f"{PATH}/{CLEANED}/{5:020d}.log", b"debris")
    topic.compact()
    assert topic.pairs() == [(b"a", b"2")]
    assert [name for name in topic.files.listdir(PATH) if "5" in name] == []


def test_indexes_of_compacted_segments_find_offsets_and_times() -> None:
    topic = CompactedLog()
    for i in range(200):
        topic.clock.ms += 10
        topic.put((b"%d" % (i % 150), bytes(200)))
    topic.compact()
    survivors = topic.records()
    assert len(survivors) == 150
    assert len(topic.log.segments.first.offsets()) > 3
    for record in survivors:
        assert topic.records(record.offset)[0] == record
        found = record_at_or_after(topic.log, record.timestamp)
        assert found is not None
        assert (found.timestamp, found.offset) == (record.timestamp, record.offset)


KEYS = st.sampled_from([b"a", b"b", b"c", b"0123456789abcdef", LONG, b""])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), min_size=1, max_size=6)
STEPS = st.one_of(
    st.tuples(st.just("put"), PAIRS, st.sampled_from(Codec)),
    st.tuples(st.just("put"), PAIRS, st.sampled_from(Codec)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("wait"), st.integers(1, 3000)),
    st.tuples(st.just("compact"), st.sampled_from([1, 4, 1000])),
    st.tuples(st.just("reopen"), st.booleans()),
)


@settings(max_examples=amount(150), deadline=None)
@given(steps=st.lists(STEPS, max_size=25))
def test_a_table_built_from_the_log_never_changes(steps: list[tuple[object, ...]]) -> None:
    topic = CompactedLog()
    everything: list[Record] = []
    for step in steps:
        match step:
            case ("put", pairs, codec):
                everything += topic.put(*pairs, codec=codec)  # type: ignore[misc, arg-type]
            case ("roll",):
                topic.log.roll()
            case ("wait", ms):
                topic.clock.ms += ms  # type: ignore[operator]
            case ("compact", keys_max):
                topic.compact(keys_max)  # type: ignore[arg-type]
            case ("reopen", clean):
                topic.reopen(clean)  # type: ignore[arg-type]
        check_survivors(topic, everything)


def check_survivors(topic: CompactedLog, everything: list[Record]) -> None:
    survivors = topic.records()
    originals = {record.offset: record for record in everything}
    assert all(originals[record.offset] == record for record in survivors)
    assert latest(survivors) == latest(everything)
    assert topic.log.end_offset == len(everything)
    clean = [record.key for record in survivors if record.offset < (topic.clean_until or 0)]
    assert len(clean) == len(set(clean))
    for offset in range(0, topic.log.end_offset, 3):
        rest = [record for record in survivors if record.offset >= offset]
        assert topic.records(offset)[:1] == rest[:1]
