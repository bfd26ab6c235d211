"""Quorums under faults: the invariants hold after every event, and liveness returns."""

from __future__ import annotations

import pytest

from penstock.model.errors import PenstockError
from tests.amounts import amount
from tests.raft.invariants import ViolatedInvariant
from tests.raft.losses import STEPS, play_losses
from tests.raft.simulation import Simulation

SEEDS = 120


def play(seed: int) -> Simulation:
    """One run of three to five nodes: all vote, or three do and the others may come to."""
    simulation = Simulation(seed, nodes=3 + seed % 3, voters=3 if seed % 2 else None)
    simulation.run_chaos(STEPS)
    simulation.heal()
    return simulation


@pytest.mark.parametrize("first", range(0, SEEDS, 30))
def test_committed_records_survive_any_faults(first: int) -> None:
    for seed in range(first, first + amount(30)):
        try:
            play(seed)
        except (ViolatedInvariant, PenstockError, AssertionError) as e:
            raise AssertionError(f"seed {seed}: {e}") from e


@pytest.mark.parametrize("first", range(0, SEEDS, 30))
def test_nothing_that_was_committed_is_lost_with_a_minority_of_disks(first: int) -> None:
    for seed in range(first, first + amount(30)):
        try:
            play_losses(seed)
        except (ViolatedInvariant, PenstockError, AssertionError) as e:
            raise AssertionError(f"seed {seed}: {e}") from e


def test_five_voters_survive_the_loss_of_two() -> None:
    simulation = Simulation(7, nodes=5)
    assert simulation.run(5_000, simulation._agrees)
    for _ in range(2):
        leader = simulation.leader()
        assert leader is not None
        simulation.append(leader, b"kept")
        simulation.run(100)
        simulation.crash(leader)
        assert simulation.run(5_000, simulation._agrees)
    assert len(simulation.running) == 3
    assert simulation.invariants.committed_end >= 4


def test_a_seed_gives_the_same_run_again() -> None:
    first, second = play(11), play(11)
    assert first.describe() == second.describe()
    assert first.now_ms == second.now_ms
    assert first.invariants.batches == second.invariants.batches
