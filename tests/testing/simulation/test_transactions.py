"""Runs with transactional clients: a few seeds, and traces that do not depend on the process."""

from __future__ import annotations

import pytest

from penstock.testing.simulation.__main__ import main
from penstock.testing.simulation.scenario import Options, Simulation


@pytest.mark.parametrize(("seed", "brokers"), [(4, 3), (17, 3), (2, 1), (6, 1)])
def test_transactions_are_atomic_under_faults(seed: int, brokers: int) -> None:
    simulation = Simulation(seed, Options.draw(seed, brokers).with_transactions())
    outcome = simulation.run()
    assert outcome.violation is None
    assert simulation.transactions is not None
    assert simulation.transactions.checker.committed


def test_the_command_line_has_transactions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "6", "--transactions"]) == 0
    assert "--seed 6 --transactions --replay" in capsys.readouterr().out
