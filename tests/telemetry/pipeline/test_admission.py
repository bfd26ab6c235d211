from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.telemetry.pipeline.admission import (
    Admission,
    Pending,
    admit,
    close,
    closed_before,
    joined,
    piece_from_rows,
    piece_rows,
)
from tests.amounts import amount

KEYS = st.tuples(st.integers(0, 3), st.integers(0, 60).map(lambda second: second * 1000))


def admitted(rows: list[tuple[int, int]], pending: Pending, watermark_ms: int = 0) -> Admission:
    """Samples with distinct values."""
    series, at = (np.array([row[column] for row in rows], np.int64) for column in (0, 1))
    return admit(series, at, np.arange(len(rows), dtype=np.float64), pending, closed_before(watermark_ms))


@settings(max_examples=amount(100), deadline=None)
@given(st.lists(st.lists(KEYS, max_size=30), min_size=1, max_size=5))
def test_each_sample_is_taken_once_or_late(batches: list[list[tuple[int, int]]]) -> None:
    """Against a set that remembers everything."""
    pending, seen, newest = Pending(), set[tuple[int, int]](), 0
    for rows in batches:
        watermark = max(0, newest - 15_000)
        found = admitted(rows, pending, watermark)
        for row, taken, late in zip(rows, found.taken, found.late, strict=True):
            assert late == (row[1] < closed_before(watermark))
            assert taken == (not late and row not in seen)
            seen |= {row} if taken else set()
            newest = max(newest, row[1]) if taken else newest
        closed, pending = close(found.pending, watermark)
        held = {
            (int(series), int(at))
            for window in (*closed, *pending.values())
            for series, at in zip(window.series, window.at, strict=True)
        }
        assert held >= {row for row in seen if row[1] >= closed_before(watermark)}
        assert [window.start for window in closed] == sorted(window.start for window in closed)
        assert all(window.start + 10_000 <= closed_before(watermark) for window in closed)
        assert all(start >= closed_before(watermark) for start in pending)


def test_of_equal_samples_the_first_is_taken() -> None:
    # Enough of them for a sort that does not keep the order of equals.
    rows = [(number % 50, 1000) for number in range(2000)]
    found = admitted(rows, {})
    assert found.taken.tolist() == [number < 50 for number in range(2000)]
    assert found.pending[0].value.tolist() == list(range(50))
    assert not admitted(rows, found.pending).taken.any()


def test_a_window_is_the_pieces_that_batches_have_added() -> None:
    first = admitted([(3, 25_000), (1, 5_000), (1, 4_000), (3, 25_001)], {})
    second = admitted([(1, 4_500), (1, 5_000), (0, 1_000)], first.pending)
    assert sorted(first.added) == [0, 20_000]
    assert (sorted(second.added), second.added[0].at.tolist()) == ([0], [1_000, 4_500])
    pieces = [piece_from_rows(0, piece_rows(each.added[0])) for each in (first, second)]
    again, whole = joined(pieces), second.pending[0]
    assert [column.tolist() for column in again[1:]] == [column.tolist() for column in whole[1:]]
    assert not admitted([(1, 5_000)], second.pending).added
