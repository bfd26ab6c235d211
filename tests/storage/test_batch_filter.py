from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.errors import CorruptMessage
from penstock.records.batch import DELETE_HORIZON_BIT, HEADER_SIZE, crc_matches, read_header
from penstock.records.codecs import Codec
from penstock.records.record import Record, Span, build_batch, iter_records, open_batch, seal
from penstock.storage.batch_filter import delete_horizon_ms, empty_batch, filter_batch, read_spans
from tests.amounts import amount
from tests.records.strategies import record_lists

HORIZON = 5_000_000


def filtered(batch: bytes, keep: set[int], start_horizon: bool = False) -> bytes | None:
    def wanted(span: Span) -> bool:
        return span.offset_delta in keep

    header = read_header(batch)
    kept = filter_batch(batch, header, wanted, new_horizon_ms=HORIZON, start_horizon=start_horizon)
    return None if kept is None else bytes(kept)


@settings(max_examples=amount(200))
@given(
    data=st.data(), records=record_lists(gaps=True), codec=st.sampled_from(Codec), append_time=st.booleans()
)
def test_survivors_are_unchanged_and_the_batch_keeps_its_place(
    data: st.DataObject, records: list[Record], codec: Codec, append_time: bool
) -> None:
    batch = build_batch(
        records,
        codec=codec,
        base_offset=0,
        leader_epoch=3,
        producer_id=7,
        producer_epoch=1,
        base_sequence=9,
        log_append_time=append_time,
        transactional=True,
    )
    keep = data.draw(st.sets(st.sampled_from([record.offset for record in records])))
    result = filtered(batch, keep)
    expected = [record for record in iter_records(batch) if record.offset in keep]
    if result is None:
        assert not expected
        return
    assert list(iter_records(result)) == expected
    before, after = read_header(batch), read_header(result)
    assert crc_matches(result, after)
    same = (
        "base_offset",
        "last_offset_delta",
        "leader_epoch",
        "producer_id",
        "producer_epoch",
        "base_sequence",
    )
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert after.max_timestamp == max(record.timestamp for record in expected)
    assert after.record_count == len(expected)
    assert after.attributes & ~DELETE_HORIZON_BIT == before.attributes
    has_tombstone = any(record.value is None for record in expected)
    assert delete_horizon_ms(after) == (HORIZON if has_tombstone else None)


def test_a_batch_that_loses_nothing_is_the_same_object() -> None:
    batch = build_batch([Record(0, 1, b"a", b"1"), Record(1, 2, b"b", b"2")], codec=Codec.ZSTD)
    assert filter_batch(batch, read_header(batch), lambda _: True, new_horizon_ms=HORIZON) is batch


def test_a_horizon_once_set_stays() -> None:
    records = [Record(0, 1, b"a", None), Record(1, 2, b"b", b"2"), Record(2, 3, b"c", None)]
    first = filtered(build_batch(records), {0, 1, 2})
    assert first is not None
    again = filter_batch(first, read_header(first), lambda s: s.offset_delta != 1, new_horizon_ms=9 * HORIZON)
    assert again is not None
    assert delete_horizon_ms(read_header(again)) == HORIZON
    assert list(iter_records(again)) == [records[0], records[2]]
    assert filter_batch(again, read_header(again), lambda _: True, new_horizon_ms=9 * HORIZON) is again


def test_a_given_horizon_is_used() -> None:
    batch = build_batch([Record(0, 1, b"a", b"1")])
    assert filtered(batch, {0}) == batch
    marked = filtered(batch, {0}, start_horizon=True)
    assert marked is not None
    assert delete_horizon_ms(read_header(marked)) == HORIZON
    assert list(iter_records(marked)) == list(iter_records(batch))


def test_an_empty_batch_is_a_header_that_keeps_producer_and_offsets() -> None:
    batch = build_batch(
        [Record(5, 1, b"a", b"1"), Record(9, 2, b"b", None)],
        codec=Codec.GZIP,
        base_offset=5,
        producer_id=3,
        producer_epoch=2,
        base_sequence=1,
        transactional=True,
    )
    before = read_header(filtered(batch, {0, 4}) or b"")
    empty = empty_batch(before)
    header = read_header(empty)
    assert len(empty) == header.size == HEADER_SIZE
    assert crc_matches(empty, header)
    assert list(iter_records(empty)) == []
    assert (header.base_offset, header.last_offset, header.last_sequence) == (5, 9, before.last_sequence)
    assert (header.producer_id, header.producer_epoch) == (3, 2)
    assert header.is_transactional
    assert (header.compression, delete_horizon_ms(header)) == (0, None)
    assert (header.base_timestamp, header.max_timestamp) == (-1, 2)


@pytest.mark.parametrize("offset", [-1, 3])
def test_records_outside_their_batch_make_no_sense(offset: int) -> None:
    header, body = open_batch(build_batch([Record(offset, 1, b"a", b"1")]))
    with pytest.raises(CorruptMessage):
        read_spans(seal(header._replace(last_offset_delta=2), body))


def test_records_outside_time_make_no_sense() -> None:
    header, body = open_batch(build_batch([Record(0, 0, b"a", b"1"), Record(1, 2**61, b"a", b"1")]))
    with pytest.raises(CorruptMessage):
        read_spans(seal(header._replace(base_timestamp=2**62), body))
