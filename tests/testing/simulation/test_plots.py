"""Plots: each comes to its point in some seed, and the brokers lose nothing by it."""

from __future__ import annotations

import pytest

from penstock.testing.simulation.plots import PLOTS
from penstock.testing.simulation.scenario import Options, simulate

#: at least so many; more while none has come to its point, which is a matter of who happens to lead
_SEEDS, _SEEDS_MAX = 3, 10


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_comes_to_its_point_and_nothing_is_lost(name: str) -> None:
    to_the_point = 0
    for seed in range(_SEEDS_MAX):
        if seed >= _SEEDS and to_the_point:
            break
        outcome = simulate(seed, Options.draw(seed, 3).plotted(name))
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        assert outcome.acknowledged
        to_the_point += not any("came to nothing" in line for line in outcome.history)
    assert to_the_point


def test_a_plot_has_a_cluster_for_itself() -> None:
    """Whatever the seed has drawn beside it: an operator would move the roles that it is about."""
    drawn = next(o for o in (Options.draw(seed, 5) for seed in range(50)) if o.operated and o.voters < 5)
    plotted = drawn.plotted("deposed")
    assert (plotted.plot, plotted.operated, plotted.voters) == ("deposed", False, 5)
