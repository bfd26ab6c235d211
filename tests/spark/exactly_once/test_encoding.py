"""Arrow columns as records: the bytes are those of the record builder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.batch import HEADER_SIZE
from penstock.records.record import Record, build_batch
from penstock.spark.exactly_once.encoding import chunks, encode_headers

contents = st.one_of(st.none(), st.binary(max_size=70), st.sampled_from((0, 63, 64, 8191, 8192)).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=3))), max_size=2)
rows = st.lists(st.tuples(contents, contents, headers, st.integers(0, 2)), min_size=1, max_size=100)
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int]


def columns(given_rows: list[Row], *, with_headers: bool) -> tuple[Any, Any, Any]:
    keys = pa.array([row[0] for row in given_rows], pa.binary())
    values = pa.array([row[1] for row in given_rows], pa.binary())
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    named = [[{"key": key, "value": value} for key, value in row[2]] for row in given_rows]
    return keys, values, encode_headers(pa.array(named, kind)) if with_headers else None


def built(group: list[Row], *, with_headers: bool) -> bytes:
    records = [
        Record(offset, 0, row[0], row[1], tuple(row[2]) if with_headers else ())
        for offset, row in enumerate(group)
    ]
    return build_batch(records)[HEADER_SIZE:]


@given(rows, st.integers(1, 30_000), st.booleans())
def test_records_are_those_of_the_builder(given_rows: list[Row], bytes_max: int, with_headers: bool) -> None:
    groups = np.array([row[3] for row in given_rows])
    keys, values, encoded = columns(given_rows, with_headers=with_headers)
    left = {group: [row for row in given_rows if row[3] == group] for group in range(3)}
    for group, records, count in chunks(keys, values, encoded, groups, bytes_max):
        expected, left[group] = left[group][:count], left[group][count:]
        assert bytes(records) == built(expected, with_headers=with_headers)
        assert len(records) <= bytes_max or count == 1
    assert not any(left.values())


def test_slices_of_arrow_batches_are_encoded_from_their_start() -> None:
    """Spark's batches may be slices; their buffers then begin with the rows of others."""
    values = pa.array([b"%d" % number for number in range(20)]).slice(5, 10)
    ((_, records, count),) = chunks(None, values, None, np.zeros(10, np.int64), 1 << 20)
    expected = [Record(at, 0, None, b"%d" % (at + 5)) for at in range(10)]
    assert (bytes(records), count) == (build_batch(expected)[HEADER_SIZE:], 10)


def test_large_values_are_encoded() -> None:
    values = pa.array([bytes(3 << 20), None], pa.binary())
    found = list(chunks(None, values, None, np.zeros(2, np.int64), 1 << 20))
    assert [count for _, _, count in found] == [1, 1]
    assert bytes(found[0].records) == build_batch([Record(0, 0, None, bytes(3 << 20))])[HEADER_SIZE:]
