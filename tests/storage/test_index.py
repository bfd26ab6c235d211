from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.storage.index import IndexDamaged, OffsetIndex, TimeIndex

STEPS = st.lists(st.tuples(st.integers(1, 1000), st.integers(61, 100_000)), max_size=60)
SIZE = 2**31 - 1


def offset_index(steps: list[tuple[int, int]]) -> OffsetIndex:
    index = OffsetIndex()
    ends = accumulate(step for step, _ in steps)
    positions = accumulate(size for _, size in steps)
    for end, position in zip(ends, positions, strict=True):
        index.add(end, position)
    return index


def time_index(steps: list[tuple[int, int]]) -> TimeIndex:
    index = TimeIndex()
    for end, timestamp in zip(accumulate(s for s, _ in steps), accumulate(t for _, t in steps), strict=True):
        index.add(timestamp, end)
    return index


@given(STEPS, st.integers(0, 70_000))
def test_a_bracket_encloses_the_batch(steps: list[tuple[int, int]], relative: int) -> None:
    index = offset_index(steps)
    low, high = index.bracket(relative, SIZE)
    below = [p for e, p in zip(index.ends, index.positions, strict=True) if e < relative]
    above = [p for e, p in zip(index.ends, index.positions, strict=True) if e >= relative]
    assert (low, high) == (max(below, default=0), min(above, default=SIZE))


@given(STEPS)
def test_offset_entries_come_back_from_the_disk(steps: list[tuple[int, int]]) -> None:
    index = offset_index(steps)
    encoded = index.encode()
    again = OffsetIndex.decode(encoded, SIZE)
    assert (again.ends, again.positions) == (index.ends, index.positions)
    assert len(encoded) == 8 * len(index)


@given(STEPS)
def test_time_entries_come_back_from_the_disk(steps: list[tuple[int, int]]) -> None:
    index = time_index(steps)
    encoded = index.encode()
    again = TimeIndex.decode(encoded)
    assert (again.timestamps, again.ends) == (index.timestamps, index.ends)
    assert len(encoded) == 12 * len(index)


@given(STEPS, st.integers(0, 6_000_000))
def test_everything_up_to_the_time_entry_is_older(steps: list[tuple[int, int]], timestamp: int) -> None:
    index = time_index(steps)
    older = [end for t, end in zip(index.timestamps, index.ends, strict=True) if t < timestamp]
    assert index.before(timestamp) == max(older, default=-1)


@given(STEPS, st.integers(0, 70_000))
def test_a_truncation_removes_entries_that_reach_the_offset(
    steps: list[tuple[int, int]], relative: int
) -> None:
    offsets, times = offset_index(steps), time_index(steps)
    kept = bisect_left(offsets.ends, relative)
    expected = offsets.ends[:kept]
    offsets.cut(relative)
    times.cut(relative)
    assert offsets.ends == times.ends == expected
    assert len(offsets.positions) == len(times.timestamps) == kept


def test_the_files_are_kafkas() -> None:
    offsets, times = OffsetIndex(), TimeIndex()
    offsets.add(5, 4200)
    offsets.add(9, 9000)
    times.add(0x18BCFE56800, 5)
    assert offsets.encode().hex(" ", 4) == "00000005 00001068 00000009 00002328"
    assert times.encode().hex(" ", 4) == "0000018b cfe56800 00000005"


def test_a_timestamp_that_is_not_larger_adds_nothing() -> None:
    times = TimeIndex()
    for timestamp, end in ((5, 1), (5, 2), (4, 3), (-1, 4), (6, 5)):
        times.add(timestamp, end)
    assert list(times.timestamps) == [5, 6]
    assert times.last() == (6, 5)
    assert TimeIndex().last() == (-1, 0)


@pytest.mark.parametrize(
    "entries",
    [
        "00000005 000000",
        "00000005 00000010 00000005 00000020",
        "00000005 00000010 00000006 00000010",
        "00000001 00000100",
    ],
)
def test_an_offset_index_that_cannot_be_true_is_noticed(entries: str) -> None:
    with pytest.raises(IndexDamaged):
        OffsetIndex.decode(bytes.fromhex(entries), 0x100)


def test_a_time_index_that_cannot_be_true_is_noticed() -> None:
    good = time_index([(1, 10), (1, 10)]).encode()
    for bad in (good[:-1], good[12:] + good[:12], good[:12] + good[:12]):
        with pytest.raises(IndexDamaged):
            TimeIndex.decode(bad)
