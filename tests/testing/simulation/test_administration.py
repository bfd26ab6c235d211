"""The operator of a simulated cluster: requested changes are made, and throttles are removed in the end."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from penstock.testing.simulation.administration import CHANGES
from penstock.testing.simulation.cluster_roles import newest_image
from penstock.testing.simulation.scenario import Options, Simulation

#: where several replicas are away from a broker, so that a reassignment takes a while
_CALM = replace(
    Options.draw(0, 5), directed_fault=None, operated=True, faults=0, loss=0.0, voters=3, duration_s=12.0
)


@pytest.mark.slow
def test_every_change_is_made_in_a_run_without_faults() -> None:
    simulation = Simulation(0, _CALM)
    outcome = simulation.run()
    assert outcome.violation is None
    lines = [re.search(r"operator +(\w+): .*\bNONE$", line) for line in outcome.history]
    made = {found[1] for found in lines if found}
    assert made == {change.__name__ for change in CHANGES}
    configs = newest_image(simulation.cluster.nodes).configs.values()
    assert not [name for values in configs for name in values if "throttled" in name]
