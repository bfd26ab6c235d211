"""Simulated clusters with TLS, SASL, ACLs and encrypted disks."""

from __future__ import annotations

import pytest

from penstock.encryption import MAGIC
from penstock.testing.simulation.__main__ import main
from penstock.testing.simulation.scenario import Options, Simulation, simulate

pytest.importorskip("cryptography")


@pytest.mark.parametrize(("seed", "nodes"), [(1, 1), (11, 3)])
def test_a_secured_cluster_keeps_its_promises(seed: int, nodes: int) -> None:
    simulation = Simulation(seed, Options.draw(seed, nodes).with_security())
    outcome = simulation.run()
    assert outcome.violation is None, "\n".join(outcome.history)
    assert outcome.acknowledged > 0
    disk = simulation.cluster.nodes[0].disk
    assert disk.read("/disk/meta.json").startswith(MAGIC)


def test_a_seed_has_one_history() -> None:
    """Ciphertext differs from run to run, and nothing else does."""
    options = Options.draw(2).with_security()
    first, second = simulate(2, options), simulate(2, options)
    assert first.trace_hash == second.trace_hash and first.history == second.history
    assert simulate(2, Options.draw(2)).trace_hash != first.trace_hash


def test_the_command_line_replays_a_secured_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--secured", "--seed", "2"]) == 0
    assert "--seed 2 --secured --replay" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["--secured", "--disasters", "--brokers", "3"])
