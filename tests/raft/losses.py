"""Simulated quorums that lose disks."""

from __future__ import annotations

from tests.raft.simulation import FORGETS, LOSSES, Simulation

STEPS = 40


def play_losses(seed: int) -> Simulation:
    """One run of three or five voters, of which a minority loses logs and disks."""
    simulation = Simulation(seed, nodes=3 + 2 * (seed % 2), is_new=seed % 4 < 2)
    simulation.run(1_000)
    simulation.run_chaos(STEPS, LOSSES)
    simulation.heal()
    return simulation


def play_forgetful(seed: int) -> Simulation:
    """One run of three or five voters, of which any number forgets its votes."""
    simulation = Simulation(seed, nodes=3 + 2 * (seed % 2))
    simulation.run(1_000)
    simulation.run_chaos(STEPS, FORGETS)
    simulation.heal()
    return simulation
