"""Runs with a share group: a few seeds, and each directed fault."""

from __future__ import annotations

import pytest

from penstock.testing.simulation.__main__ import main
from penstock.testing.simulation.scenario import Options, Simulation


def _run(seed: int, options: Options) -> None:
    simulation = Simulation(seed, options)
    assert simulation.run().violation is None
    assert simulation.shares is not None
    assert sum(map(len, simulation.shares.checker.finished.values()))


@pytest.mark.parametrize(("seed", "brokers"), [(1, 3), (3, 1)])
def test_no_record_is_lost_or_delivered_after_its_acknowledgement(seed: int, brokers: int) -> None:
    _run(seed, Options.draw(seed, brokers).with_shares())


@pytest.mark.parametrize("fault", ["share_leader_isolated", "share_leaders_in_turn", "queue_kills"])
def test_leaders_and_share_coordinators_fail_over(fault: str) -> None:
    _run(2, Options.draw(2, 3).with_shares(fault))


def test_committed_state_survives_kills_of_leader_coordinator_and_state_leader_in_turn() -> None:
    """A log start that nothing explained counted as damage, and a shorter log of the share state led."""
    _run(300019, Options.draw(300019, 3).with_shares("share_kills_in_turn"))


def test_the_command_line_has_share_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "6", "--shares"]) == 0
    assert "--seed 6 --shares --replay" in capsys.readouterr().out
