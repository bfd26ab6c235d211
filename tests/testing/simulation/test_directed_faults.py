"""Directed faults: each reaches its state in some seed, and the brokers lose nothing."""

from __future__ import annotations

import pytest

from penstock.testing.simulation.directed_faults import DIRECTED_FAULTS
from penstock.testing.simulation.scenario import Options, simulate

#: the fewest seeds, and the most while no seed has reached the state: that depends on which brokers lead
_SEEDS, _SEEDS_MAX = 3, 10


@pytest.mark.slow
@pytest.mark.parametrize("name", DIRECTED_FAULTS)
def test_a_directed_fault_reaches_its_state_and_nothing_is_lost(name: str) -> None:
    reached = 0
    for seed in range(_SEEDS_MAX):
        if seed >= _SEEDS and reached:
            break
        outcome = simulate(seed, Options.draw(seed, 3).with_directed_fault(name))
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        assert outcome.acknowledged
        reached += not any("came to nothing" in line for line in outcome.history)
    assert reached


def test_a_directed_fault_has_a_cluster_for_itself() -> None:
    """An operator of the seed would move the leaders that the directed fault is about."""
    drawn = next(o for o in (Options.draw(seed, 5) for seed in range(50)) if o.operated and o.voters < 5)
    directed = drawn.with_directed_fault("deposed")
    assert (directed.directed_fault, directed.operated, directed.voters) == ("deposed", False, 5)
