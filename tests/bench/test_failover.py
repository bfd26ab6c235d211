"""How an outage is read from acknowledgements."""

from __future__ import annotations

import pytest

from bench.failover import _all_ways
from bench.steady import longest_gap


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([0.5, 1.0, 3.0, 3.5], 2.0),  # between two acknowledgements
        ([0.5, 2.5, 3.0, 3.5], 1.5),  # from the fault: what came before it does not count
        ([1.0, 1.5, 2.0], 2.0),  # to the end
        ([], 3.0),
    ],
)
def test_the_longest_gap(times: list[float], expected: float) -> None:
    assert longest_gap(times, 1.0, 4.0) == expected


def test_an_isolated_broker_is_cut_off_from_all_nodes_in_both_directions() -> None:
    ways = _all_ways(2)
    assert len(ways) == len(set(ways)) == 6
    assert all(2 in way for way in ways)
    assert {(2, -1), (-1, 2), (2, 3), (1, 2)} <= set(ways)
