"""Whole runs: seeds pass, a run is what its seed says, and a broker that lies is caught."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.broker.flusher import Flusher
from penstock.model.errors import StorageError
from penstock.testing.simulation.__main__ import main
from penstock.testing.simulation.faults import FAULTS
from penstock.testing.simulation.scenario import Options, simulate

#: Seeds run in groups, so that one that fails does not hide the others.
_GROUPS, _SEEDS_EACH = 10, 20


@pytest.mark.parametrize("group", range(_GROUPS))
def test_nothing_acknowledged_is_lost(group: int) -> None:
    acknowledged = 0
    for seed in range(group * _SEEDS_EACH, (group + 1) * _SEEDS_EACH):
        outcome = simulate(seed)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        acknowledged += outcome.acknowledged
    assert acknowledged > 100 * _SEEDS_EACH / 2


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_alone_is_survived(name: str) -> None:
    outcome = simulate(1, replace(Options.draw(1), allowed=(name,), faults=3))
    assert outcome.violation is None


def _trace_hash(seed: int, hash_seed: str) -> str:
    command = [sys.executable, "-m", "penstock.testing.simulation", "--seed", str(seed)]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    output = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    (found,) = [line for line in output.splitlines() if " trace " in line]
    return found.rpartition(" trace ")[2]


def test_a_seed_is_one_run_whatever_the_hash_seed() -> None:
    hashes = {_trace_hash(12, hash_seed) for hash_seed in ("1", "4242")}
    assert hashes == {simulate(12).trace_hash}
    assert simulate(13).trace_hash not in hashes


def _ack_before_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    when_flushed = Flusher.when_flushed

    def at_once(self: Flusher, callback: Callable[[StorageError | None], None]) -> None:
        when_flushed(self, lambda error: None)
        callback(None)

    monkeypatch.setattr(Flusher, "when_flushed", at_once)


def test_a_broker_that_acknowledges_before_it_syncs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _ack_before_sync(monkeypatch)
    found = next((o for o in map(simulate, range(40)) if o.violation is not None), None)
    assert found is not None
    assert found.violation is not None
    assert found.violation.name in ("lost write", "record changed")


def test_a_failure_says_how_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _ack_before_sync(monkeypatch)
    failing = next(seed for seed in range(40) if simulate(seed).violation is not None)
    assert main(["--seed", str(failing)]) == 1
    output = capsys.readouterr().out
    assert "boots (1)" in output
    assert f"options {Options.draw(failing)}" in output
    assert f"--seed {failing} --replay" in output
