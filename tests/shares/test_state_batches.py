"""State batches of a share partition, merged with newer ones: checked record by record."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.shares.state_batches import combine
from penstock.shares.states import RecordState, StateBatch

STATES = [state for state in RecordState if state != RecordState.ACQUIRED]


@st.composite
def state_batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 40))
    return StateBatch(
        first, first + draw(st.integers(0, 12)), draw(st.sampled_from(STATES)), draw(st.integers(1, 3))
    )


@given(st.lists(st.tuples(st.lists(state_batches(), max_size=4), st.integers(0, 8)), max_size=12))
def test_each_record_has_its_highest_count_and_state(writes: list[tuple[list[StateBatch], int]]) -> None:
    records: dict[int, tuple[int, int]] = {}
    batches: list[StateBatch] = []
    start = 0
    for updates, step in writes:
        start += step
        batches = combine(batches, updates, start)
        for update in updates:
            for offset in range(update.first, update.last + 1):
                known = records.get(offset, (0, -1))
                records[offset] = max(known, (update.delivery_count, update.state))
        records = {offset: record for offset, record in records.items() if offset >= start}
        found = {o: (b.delivery_count, b.state) for b in batches for o in range(b.first, b.last + 1)}
        assert found == records
        for left, right in pairwise(batches):
            assert left.last < right.first, "sorted and disjoint"
            is_equal = (left.state, left.delivery_count) == (right.state, right.delivery_count)
            assert left.last + 1 < right.first or not is_equal, "as few as possible"


def test_a_write_that_is_repeated_changes_nothing() -> None:
    batches = [StateBatch(2 * i, 2 * i, RecordState.AVAILABLE, 1) for i in range(100)]
    once = combine([], batches, 0)
    assert once == batches
    assert combine(once, batches, 0) == batches
    assert combine(once, [StateBatch(300, 299, RecordState.AVAILABLE, 1)], 0) == batches
