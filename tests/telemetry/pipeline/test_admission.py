from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry.pipeline.admission import (
    PENDING,
    admit,
    close,
    closed_before,
    field_of,
    gpu_of,
    series_of,
)

KEYS = st.tuples(st.integers(0, 3), st.integers(0, 60).map(lambda second: second * 1000))


def table(rows: list[tuple[int, int]]) -> Any:
    """Samples whose values tell them apart."""
    series, at = [row[0] for row in rows], [row[1] for row in rows]
    return pa.table([series, at, [float(number) for number in range(len(rows))]], schema=PENDING)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(KEYS, max_size=30), min_size=1, max_size=5))
def test_each_sample_is_taken_once_or_late(batches: list[list[tuple[int, int]]]) -> None:
    """Against a set that remembers everything."""
    pending, seen, newest = PENDING.empty_table(), set[tuple[int, int]](), 0
    for rows in batches:
        watermark = max(0, newest - 15_000)
        admitted = admit(table(rows), pending, watermark)
        for row, taken, late in zip(rows, admitted.taken, admitted.late, strict=True):
            assert late == (row[1] < closed_before(watermark))
            assert taken == (not late and row not in seen)
            seen |= {row} if taken else set()
            newest = max(newest, row[1]) if taken else newest
        closed, pending = close(admitted.pending, watermark)
        assert all(at < closed_before(watermark) for at in closed["at"].to_pylist())
        assert all(at >= closed_before(watermark) for at in pending["at"].to_pylist())


def test_of_equal_samples_the_first_is_taken() -> None:
    admitted = admit(table([(1, 1000), (1, 1000)]), PENDING.empty_table(), 0)
    assert admitted.taken.tolist() == [True, False]
    assert admitted.pending["value"].to_pylist() == [0.0]


def test_a_series_is_a_gpu_and_a_field() -> None:
    gpus, fields = np.array([0, 7, 1 << 20]), np.array([-1, 150, 1012])
    series = series_of(gpus, fields)
    assert gpu_of(series).tolist() == gpus.tolist()
    assert field_of(series).tolist() == fields.tolist()
