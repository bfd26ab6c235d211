"""Filters and the ranges that they leave, judged by the rows themselves."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.frames.pruning import prune
from penstock.frames.scanning import whole_schema
from penstock.reading.planning import OffsetRange

SCHEMA = whole_schema(headers=True, text=True)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
RANGES = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 50, 80), OffsetRange("t", 2, 90, 95)]
key_of, topic_of, partition_of, offset_of, time_of = map(
    pc.field, ("key", "topic", "partition", "offset", "timestamp")
)


def offset(number: int) -> Any:
    return pa.scalar(number, pa.int64())


def partition(number: int) -> Any:
    return pa.scalar(number, pa.int32())


def after_noon(**of: float) -> Any:
    return pa.scalar(NOON + timedelta(**of), SCHEMA.field("timestamp").type)


@pytest.mark.parametrize(
    ("wanted", "left", "since_ms"),
    [
        (partition_of == partition(1), [RANGES[1]], None),
        (partition_of.isin([0, 2]), [RANGES[0], RANGES[2]], None),
        (topic_of == "other", [], None),
        (offset_of >= offset(92), [OffsetRange("t", 0, 92, 100), OffsetRange("t", 2, 92, 95)], None),
        (offset_of < offset(51), [OffsetRange("t", 0, 0, 51), OffsetRange("t", 1, 50, 51)], None),
        (offset_of == offset(93), [OffsetRange("t", 0, 93, 94), OffsetRange("t", 2, 93, 94)], None),
        (offset_of > offset(1000), [], None),
        (
            (partition_of == partition(2)) & (offset_of > offset(93)),
            [OffsetRange("t", 2, 94, 95)],
            None,
        ),
        (time_of >= after_noon(), RANGES, NOON_MS),
        (time_of > after_noon(milliseconds=0.5), RANGES, NOON_MS),
        (time_of < after_noon(), RANGES, None),
        ((time_of >= after_noon()) | (partition_of == partition(0)), RANGES, None),
        (key_of == "k", RANGES, None),
    ],
)
def test_ranges_without_a_passing_row_are_left_out(
    wanted: Any, left: list[OffsetRange], since_ms: int | None
) -> None:
    found = prune(RANGES, wanted, SCHEMA)
    assert found.ranges == left
    assert found.since_ms == since_ms


_COMPARISONS = st.sampled_from([operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge])
_ATOMS = st.one_of(
    st.tuples(_COMPARISONS, st.just(offset_of), st.integers(-1, 12).map(offset)),
    st.tuples(_COMPARISONS, st.just(partition_of), st.integers(0, 2).map(partition)),
    st.tuples(
        _COMPARISONS, st.just(time_of), st.integers(0, 4).map(lambda number: after_noon(seconds=number))
    ),
).map(lambda atom: atom[0](atom[1], atom[2]))
_FILTERS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda pair: pair[0] & pair[1]),
        st.tuples(inner, inner).map(lambda pair: pair[0] | pair[1]),
        inner.map(operator.invert),
    ),
    max_leaves=5,
)


@given(_FILTERS)
def test_no_row_that_passes_is_left_out(wanted: Any) -> None:
    """Two partitions of ten records, each a second after the one before."""
    places = [(number, at) for number in range(2) for at in range(10)]
    rows = pa.table(
        {
            "partition": pa.array([number for number, _ in places], pa.int32()),
            "offset": pa.array([at for _, at in places], pa.int64()),
            "timestamp": pa.array(
                [NOON + timedelta(seconds=at) for _, at in places], SCHEMA.field("timestamp").type
            ),
        }
    )
    found = prune([OffsetRange("t", number, 0, 10) for number in range(2)], wanted, SCHEMA)
    left = {(each.partition, at) for each in found.ranges for at in range(each.start, each.stop)}
    for row in rows.filter(wanted).to_pylist():
        assert (row["partition"], row["offset"]) in left
        assert found.since_ms is None or row["timestamp"].timestamp() * 1000 >= found.since_ms
