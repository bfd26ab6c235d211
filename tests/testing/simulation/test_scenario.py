"""Whole runs: seeds pass, a run is what its seed says, and a failure says how to see it again."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from penstock.model.ids import OFFSETS_TOPIC, TopicPartition
from penstock.storage.segment_files import LOG
from penstock.testing.simulation.__main__ import main
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.cluster_roles import replica_on
from penstock.testing.simulation.faults import FAULTS
from penstock.testing.simulation.process import Process
from penstock.testing.simulation.scenario import Options, Outcome, Simulation, simulate

#: Seeds run in groups, so that one that fails does not hide the others.
_GROUPS, _SEEDS_EACH = 10, 15


@pytest.mark.slow
@pytest.mark.parametrize("group", range(_GROUPS))
def test_nothing_acknowledged_is_lost(group: int) -> None:
    acknowledged = 0
    for seed in range(group * _SEEDS_EACH, (group + 1) * _SEEDS_EACH):
        outcome = simulate(seed)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        acknowledged += outcome.acknowledged
    assert acknowledged > 20 * _SEEDS_EACH


@pytest.mark.slow
@pytest.mark.parametrize(
    ("brokers", "seeds"),
    [(3, range(first, first + 10)) for first in range(0, 120, 10)] + [(5, range(5)), (5, range(5, 10))],
    ids=lambda value: f"from-{value[0]}" if isinstance(value, range) else str(value),
)
def test_a_cluster_keeps_every_invariant(brokers: int, seeds: range) -> None:
    for seed in seeds:
        outcome = simulate(seed, brokers=brokers)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        assert outcome.acknowledged


@pytest.mark.parametrize("seed", range(6))
def test_without_syncs_replicas_are_enough_while_machines_keep_their_power(seed: int) -> None:
    """penstock.flush=os is Kafka's way: a process that dies leaves its bytes to the operating system."""
    faults = ("kill", "stop", "pause", "partition", "one_way", "slow_link", "resets")
    options = replace(Options.draw(seed, 3), allowed=faults)
    outcome = simulate(seed, options, settings={"penstock.flush": "os"})
    assert outcome.violation is None
    assert outcome.acknowledged


@pytest.mark.parametrize("name", FAULTS)
def test_each_fault_alone_is_survived(name: str) -> None:
    outcome = simulate(1, replace(Options.draw(1), allowed=(name,), faults=3))
    assert outcome.violation is None


def test_a_flipped_bit_is_repaired() -> None:
    flipped = 0
    for seed in range(3):
        options = replace(
            Options.draw(seed, 3), allowed=("bit_rot",), faults=6, directed_fault=None, roll_ms=300
        )
        outcome = simulate(seed, options)
        assert outcome.violation is None, f"seed {seed}: {outcome.violation}"
        flipped += sum("flips at" in line for line in outcome.history)
    assert flipped


def test_replicas_that_compact_each_by_itself_keep_every_invariant() -> None:
    simulation = Simulation(18, Options.draw(18, 3).lengthened(8.0))
    assert simulation.run().violation is None
    stored = set()
    for node in simulation.cluster.nodes:
        replica = replica_on(node, TopicPartition(OFFSETS_TOPIC, 1))
        assert replica is not None
        oldest = replica.log.segments.first
        assert oldest.is_compacted
        stored.add(node.disk.read(oldest.path(LOG)))
    assert len(stored) > 1


_HASHES = """
from penstock.testing.simulation.scenario import simulate
for seed in range(28, 38):
    print(simulate(seed).trace_hash)
print(simulate(3, brokers=3).trace_hash)
"""


def _trace_hashes(hash_seed: str) -> list[str]:
    """Of several seeds: those after the first meet a memory that the others left in disorder."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", _HASHES]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.process
def test_a_seed_is_one_run_under_any_hash_seed() -> None:
    hashes = _trace_hashes("1")
    assert len(set(hashes)) == 11
    assert _trace_hashes("4242") == hashes
    assert simulate(30).trace_hash == hashes[2]


def test_a_violation_between_steps_ends_a_run() -> None:
    """As invariants of what is inside of brokers are."""

    def prepare(simulation: Simulation) -> None:
        def check(process: Process) -> None:
            if simulation.cluster.checker.acknowledged >= 5:
                raise Violation("five is too many", process.name)

        simulation.cluster.loop.after_step = check

    outcome = simulate(3, prepare=prepare)
    assert outcome.violation is not None
    assert outcome.violation.name == "five is too many"
    assert outcome.acknowledged < 8


def test_a_callback_that_fails_ends_in_a_violation() -> None:
    def prepare(simulation: Simulation) -> None:
        process = simulation.cluster.admin.process
        simulation.cluster.loop.call_later(0.1, int, "no number", context=process.context)

    outcome = simulate(3, prepare=prepare)
    assert outcome.violation is not None
    assert outcome.violation.name == "unhandled error"


def test_a_failure_prints_how_to_repeat_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(simulate(3), violation=Violation("lost write", "all of them"))
    monkeypatch.setattr("penstock.testing.simulation.__main__.simulate", lambda seed, options: broken)
    assert main(["--seed", "3"]) == 1
    output = capsys.readouterr().out
    assert "boots (1)" in output
    assert "seed 3: lost write: all of them" in output
    assert f"options {Options.draw(3)}" in output
    assert "--brokers 1 --seed 3 --replay" in output


def test_a_single_broker_cannot_be_operated(capsys: pytest.CaptureFixture[str]) -> None:
    """The operator drew the replicas of a reassignment from an empty range."""
    with pytest.raises(SystemExit):
        main(["--seed", "1", "--operated"])
    assert "--operated needs --brokers 3 or 5" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--disasters"],
        ["--disaster", "no_descriptors"],
        ["--directed-fault", "another_life"],
        ["--brokers", "3", "--directed-fault", "moved_by_hand"],
    ],
)
def test_a_fault_that_needs_more_brokers_is_refused(
    flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["--seed", "1", *flags])
    assert "--brokers" in capsys.readouterr().err


def test_a_directed_fault_can_be_requested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--brokers", "3", "--directed-fault", "another_life", "--replay"]) == 0
    output = capsys.readouterr().out
    assert "plays another_life" in output
    assert "--brokers 3 --seed 1 --directed-fault another_life --replay" in output


def test_a_long_run_is_possible(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    short = simulate(3)

    def run(seed: int, options: Options) -> Outcome:
        return replace(short, seed=seed, options=options)

    monkeypatch.setattr("penstock.testing.simulation.__main__.simulate", run)
    drawn = Options.draw(2, 3).lengthened(40.0)
    for flags, options in (([], drawn), (["--operated"], drawn.with_operator())):
        assert main(["--seed", "2", "--brokers", "3", "--seconds", "40", *flags]) == 0
        output = capsys.readouterr().out
        assert f"options {options}" in output
        assert " ".join(["--brokers 3 --seed 2 --seconds 40", *flags, "--replay"]) in output
