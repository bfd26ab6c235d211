from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch

from penstock.model.errors import CorruptMessage
from penstock.records.batch import HEADER_SIZE, read_header
from penstock.records.codecs import Codec
from penstock.records.columnar import ALL_COLUMNS, HEADERS_TYPE, ROWS_MAX, Wanted, decode
from penstock.records.committed import committed
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch, iter_batches, iter_records, seal
from penstock.records.varint import encode_varint
from tests.amounts import amount
from tests.records.strategies import record_lists

ALL = range(2**63 - 1)
WITH_HEADERS = ALL_COLUMNS | {"headers"}


def rows_of(
    data: bytes, wanted: range = ALL, *, aborted: Iterable[tuple[int, int]] | None = None
) -> list[Record]:
    """What the columns say, as records; `aborted` stands for a read_committed fetch."""
    batches: Any = iter_batches(data)
    if aborted is not None:
        batches = committed(data, batches, list(aborted))
    rows: list[Record] = []
    for columns in decode(data, batches, Wanted(wanted, WITH_HEADERS)):
        columns.validate(full=True)
        assert 0 < columns.num_rows <= ROWS_MAX
        rows += map(_record, columns.to_pylist())
    return rows


def _record(row: dict[str, Any]) -> Record:
    timestamp = round(row["timestamp"].timestamp() * 1000)
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return Record(row["offset"], timestamp, row["key"], row["value"], headers)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[Record]]:
    """A few batches one behind the other, in any codecs, and the records in them."""
    log, records, base = b"", [], draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 4))):
        part = [r._replace(offset=r.offset + base) for r in draw(record_lists(gaps=True))]
        log += build_batch(part, codec=draw(st.sampled_from(Codec)), base_offset=base)
        records += part
        base = part[-1].offset + 1
    return log, records


@settings(deadline=None)
@given(log=logs())
def test_columns_equal_the_built_records_and_those_of_other_decoders(log: tuple[bytes, list[Record]]) -> None:
    data, records = log
    assert rows_of(data) == records
    spans = [data[position : position + header.size] for position, header in iter_batches(data)]
    assert [record for span in spans for record in iter_records(span)] == records
    theirs = [r for span in spans for r in KafkaPythonBatch(span)]
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs] == records


@settings(deadline=None)
@given(log=logs(), data=st.data())
def test_only_wanted_offsets_of_whole_batches(log: tuple[bytes, list[Record]], data: st.DataObject) -> None:
    bytes_, records = log
    offsets = [record.offset for record in records]
    edges = st.integers(offsets[0] - 1, offsets[-1] + 1)
    wanted = range(data.draw(edges), data.draw(edges))
    assert rows_of(bytes_, wanted) == [record for record in records if record.offset in wanted]
    cut = data.draw(st.integers(0, len(bytes_)))
    whole = [header.last_offset for _, header in iter_batches(bytes_[:cut])]
    expected = [record for record in records if whole and record.offset <= whole[-1]]
    assert rows_of(bytes_[:cut]) == expected


@settings(deadline=None)
@given(log=logs(), columns=st.sets(st.sampled_from(sorted(WITH_HEADERS)), min_size=1), data=st.data())
def test_chosen_columns_and_times_are_those_of_all_columns(
    log: tuple[bytes, list[Record]], columns: set[str], data: st.DataObject
) -> None:
    """Some batches are answered by their headers alone, others without a look at keys and values."""
    bytes_, records = log
    stamps = st.sampled_from([record.timestamp for record in records])
    times = data.draw(st.none() | st.builds(range, stamps, stamps))
    offsets = range(data.draw(st.integers(records[0].offset, records[-1].offset)), records[-1].offset + 1)
    wanted = Wanted(offsets, frozenset(columns), verify=data.draw(st.booleans()))
    everything = Wanted(offsets, WITH_HEADERS)
    if times is not None:
        wanted, everything = replace(wanted, times=times), replace(everything, times=times)
    found = [row for part in decode(bytes_, iter_batches(bytes_), wanted) for row in part.to_pylist()]
    whole = [row for part in decode(bytes_, iter_batches(bytes_), everything) for row in part.to_pylist()]
    assert found == [{name: row[name] for name in row if name in columns} for row in whole]
    expected = [r for r in records if r.offset in offsets and (times is None or r.timestamp in times)]
    assert [row["offset"] for row in whole] == [record.offset for record in expected]


@settings(deadline=None, max_examples=amount(300))
@given(records=record_lists(), data=st.data())
def test_damage_that_has_a_right_checksum_is_an_error_or_other_rows(
    records: list[Record], data: st.DataObject
) -> None:
    batch = build_batch(records)
    body = bytearray(batch[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    damaged = seal(read_header(batch), bytes(body))
    with contextlib.suppress(CorruptMessage):
        for columns in decode(damaged, iter_batches(damaged), Wanted(ALL, WITH_HEADERS)):
            columns.validate(full=True)


@pytest.mark.parametrize("codec", Codec)
def test_groups_of_many_batches_and_a_batch_of_many_records(codec: Codec) -> None:
    small = [Record(i, i, b"%d" % i, None) for i in range(ROWS_MAX)]
    log = b"".join(
        build_batch(small[i : i + 100], base_offset=i, codec=codec) for i in range(0, ROWS_MAX, 100)
    )
    large = [Record(ROWS_MAX + i, i, None, b"v" * (i % 3)) for i in range(2 * ROWS_MAX + 1)]
    log += build_batch(large, base_offset=ROWS_MAX, codec=codec)
    assert rows_of(log) == small + large


def test_whole_batches_go_together_as_far_as_rows_allow() -> None:
    size = ROWS_MAX // 2 - 1
    log = b"".join(build_batch([Record(0, 0, None, None)] * size) for _ in range(3))
    assert [columns.num_rows for columns in decode(log, iter_batches(log), Wanted(ALL))] == [2 * size, size]


@pytest.mark.parametrize("size", [62, 63, 64, 8190, 8191, 8192, 1 << 20, 3 << 20])
def test_values_of_every_length_of_length(size: int) -> None:
    records = [Record(0, 0, None, b"a" * size), Record(1, 0, b"k", b"b" * size), Record(2, 0, None, b"")]
    assert rows_of(build_batch(records)) == records


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("size", range(15))
def test_bytes_that_fit_into_a_view_are_read_up_to_the_very_end(size: int, codec: Codec) -> None:
    records = [Record(0, 0, b"k" * size, None), Record(1, 0, None, b"abcdefghijklmno"[:size])]
    assert rows_of(build_batch(records, codec=codec)) == records


def test_decoded_columns_hold_no_view_of_the_buffer() -> None:
    records = [Record(0, 0, b"key", b"value" * 10, (("name", b"header" * 10),))]
    data = bytearray(build_batch(records))
    (columns,) = decode(data, list(iter_batches(data)), Wanted(ALL, WITH_HEADERS))
    # refused while there is a view of it
    data.clear()
    assert [_record(row) for row in columns.to_pylist()] == records


def test_append_time_holds_for_all_records_of_its_batch() -> None:
    stamped = build_batch([Record(0, 5, None, b"a"), Record(1, 9, None, b"b")], log_append_time=True)
    created = build_batch([Record(2, 7, None, b"c")], base_offset=2)
    (columns,) = decode(stamped + created, iter_batches(stamped + created), Wanted(ALL))
    assert columns.column("timestamp").cast(pa.int64()).to_pylist() == [9000, 9000, 7000]
    assert columns.column("timestampType").to_pylist() == [1, 1, 0]
    assert columns.schema.names == ["key", "value", "offset", "timestamp", "timestampType"]


def test_names_of_headers_that_are_not_utf8_are_shown() -> None:
    header = encode_varint(2) + b"\xffa" + encode_varint(1) + b"v"
    body = b"\0\0\0\x01\x01" + encode_varint(1) + header
    batch = seal(read_header(build_batch([Record(0, 0, None, None)])), encode_varint(len(body)) + body)
    (columns,) = decode(batch, iter_batches(batch), Wanted(ALL, WITH_HEADERS))
    assert columns.schema.field("headers").type == HEADERS_TYPE
    assert columns.column("headers").to_pylist() == [[{"key": "�a", "value": b"v"}]]


def test_records_without_headers_have_null_and_not_an_empty_list() -> None:
    batch = build_batch([Record(0, 0, None, None), Record(1, 0, None, None, (("a", None),))])
    (columns,) = decode(batch, iter_batches(batch), Wanted(ALL, WITH_HEADERS))
    assert columns.column("headers").to_pylist() == [None, [{"key": "a", "value": None}]]


def test_a_wrong_checksum_is_corrupt() -> None:
    batch = bytearray(build_batch([Record(0, 0, None, b"value")]))
    batch[-2] ^= 1
    with pytest.raises(CorruptMessage, match="checksum"):
        rows_of(bytes(batch))


def test_less_than_no_records_are_corrupt() -> None:
    batch = build_batch([Record(0, 0, None, b"value")])
    damaged = seal(read_header(batch)._replace(record_count=-1), b"")
    with pytest.raises(CorruptMessage, match="-1 records"):
        rows_of(damaged)


def test_control_batches_are_left_out() -> None:
    log = _transaction(0, producer=7, end=True) + build_batch([Record(2, 0, None, b"x")], base_offset=2)
    assert [record.offset for record in rows_of(log)] == [0, 2]


def _transaction(base: int, *, producer: int, end: bool | None) -> bytes:
    """One record, and the marker that ends its transaction (True commits), if any."""
    log = build_batch(
        [Record(base, 0, None, b"t")],
        base_offset=base,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    if end is None:
        return log
    marker = EndTransaction(end, 0)
    return log + build_end_transaction(
        marker, producer_id=producer, producer_epoch=0, timestamp=0, base_offset=base + 1
    )


def test_read_committed_hides_aborted_records_and_no_others() -> None:
    log = (
        _transaction(0, producer=7, end=False)
        + _transaction(2, producer=7, end=True)
        + _transaction(4, producer=8, end=None)
        + build_batch([Record(5, 0, None, b"plain")], base_offset=5)
        + _transaction(6, producer=7, end=False)
    )
    assert [record.offset for record in rows_of(log)] == [0, 2, 4, 5, 6]
    shown = rows_of(log, aborted=[(7, 6), (8, 4), (7, 0)])
    assert [record.offset for record in shown] == [2, 5]


@settings(deadline=None)
@given(
    outcomes=st.lists(st.tuples(st.sampled_from([1, 2, 3]), st.booleans()), min_size=1, max_size=8),
    skipped=st.integers(0, 8),
)
def test_read_committed_from_anywhere(outcomes: list[tuple[int, bool]], skipped: int) -> None:
    """A fetch starts anywhere; the broker names the aborted transactions that reach into what it sends."""
    parts = [_transaction(2 * i, producer=p, end=end) for i, (p, end) in enumerate(outcomes)]
    aborted = [(p, 2 * i) for i, (p, end) in enumerate(outcomes) if not end and i >= skipped]
    shown = rows_of(b"".join(parts[skipped:]), aborted=aborted)
    assert [record.offset for record in shown] == [
        2 * i for i, (_, end) in enumerate(outcomes) if end and i >= skipped
    ]
