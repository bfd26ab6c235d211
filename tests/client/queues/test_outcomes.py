from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.queues.outcomes import Outcome, batches_of


def ranges(outcomes: dict[int, Outcome]) -> list[tuple[int, int, list[int]]]:
    return [(b.first_offset, b.last_offset, b.acknowledge_types) for b in batches_of(outcomes)]


def test_neighbours_with_the_same_outcome_are_one_range() -> None:
    accept, release = Outcome.ACCEPT, Outcome.RELEASE
    outcomes = {7: accept, 5: accept, 6: accept, 8: release, 10: release, 0: accept}
    assert ranges(outcomes) == [(0, 0, [1]), (5, 7, [1]), (8, 8, [2]), (10, 10, [2])]
    assert ranges({}) == []


@given(st.dictionaries(st.integers(0, 60), st.sampled_from(Outcome)))
def test_ranges_repeat_the_outcomes_in_the_order_of_offsets(outcomes: dict[int, Outcome]) -> None:
    found = ranges(outcomes)
    assert {o: t[0] for first, last, t in found for o in range(first, last + 1)} == outcomes
    assert all(one[1] < other[0] for one, other in pairwise(found))
