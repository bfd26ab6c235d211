"""The parts that decide: which entries a cache keeps, and how far is read ahead."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.remote.read_ahead import ReadAhead
from penstock.remote.residency import Residency
from tests.amounts import amount


@settings(max_examples=amount(60), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40), st.booleans())), st.integers(1, 100))
def test_a_residency_keeps_the_latest_used_entries(steps: list[tuple[int, int, bool]], limit: int) -> None:
    kept: Residency[int, int] = Residency(limit)
    model: dict[int, int] = {}
    for key, size, is_read in steps:
        if is_read:
            assert kept.get(key) == (key if key in model else None)
            if key in model:
                model[key] = model.pop(key)
            continue
        old = model.pop(key, None)
        model[key] = size
        gone = [] if old is None else [key]
        while sum(model.values()) > limit and len(model) > 1:
            oldest = next(iter(model))
            del model[oldest]
            gone.append(oldest)
        assert kept.add(key, key, size) == gone
        assert kept.size == sum(model.values()) and len(kept) == len(model)
        assert kept.size <= limit or len(kept) == 1
    assert kept.clear() == list(model) and kept.size == 0


def test_reading_ahead_grows_with_each_step_of_a_reader() -> None:
    ahead: ReadAhead[int] = ReadAhead(limit=4)
    assert [ahead.reads(n, n + 1) for n in (0, 0, 1, 1, 2, 3, 4)] == [0, 0, 1, 1, 2, 4, 4]


def test_a_reader_that_jumps_gets_nothing_ahead_and_does_not_disturb_others() -> None:
    ahead: ReadAhead[int] = ReadAhead(limit=4)
    assert [ahead.reads(n, n + 1) for n in (0, 1, 50, 2, 90, 3)] == [0, 1, 0, 2, 0, 4]


def test_a_bounded_number_of_readers_is_told_apart() -> None:
    ahead: ReadAhead[int] = ReadAhead()
    for n in range(0, 1000, 10):
        ahead.reads(n, n + 1)
    assert ahead.reads(1, 2) == 0, "the first reader was forgotten"
    assert ahead.reads(991, 992) == 1
