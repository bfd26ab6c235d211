"""Real brokers that replicate, on simulated machines: nothing acknowledged is lost, whatever happens.

Three machines with disks that lose what was not synced, a network that is cut, and clients that write down
what they were told. With a guard taken away, the same seeds find a broken promise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from penstock.broker.leadership import Leadership
from penstock.model.errors import ErrorCode
from penstock.replication.leader import LeaderState
from penstock.testing.simulation.scenario import Options, Outcome, Simulation

_INTERNAL: Final = 19092
_SEEDS: Final = range(24)


def simulate(seed: int, *, allowed: tuple[str, ...] | None = None, **settings: str) -> Outcome:
    """A run of three brokers with topics of three replicas, two of which have to be in sync."""
    drawn = Options.draw(seed)
    options = replace(drawn, nodes=3, duration_s=drawn.duration_s + 3, faults=drawn.faults + 2)
    if allowed is not None:
        options = replace(options, allowed=allowed)
    simulation = Simulation(seed, options)
    voters = ",".join(f"{node.id}@{node.name}:{_INTERNAL}" for node in simulation.nodes)
    for node in simulation.nodes:
        node.settings |= {
            "listeners": f"PLAINTEXT://{node.name}:9092,INTERNAL://{node.name}:{_INTERNAL}",
            "controller.quorum.voters": voters,
            "min.insync.replicas": "2",
            "replica.lag.time.max.ms": "2000",
            **settings,
        }
    return simulation.run()


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_promise_is_broken(seed: int) -> None:
    outcome = simulate(seed)
    assert outcome.violation is None
    assert outcome.acknowledged


@pytest.mark.parametrize("seed", _SEEDS[:6])
def test_without_syncs_replicas_are_enough_while_machines_keep_their_power(seed: int) -> None:
    """penstock.flush=os is Kafka's way: a process that dies leaves its bytes to the operating system."""
    faults = ("kill", "stop", "pause", "partition", "one_way", "slow_link", "resets")
    outcome = simulate(seed, allowed=faults, **{"penstock.flush": "os"})
    assert outcome.violation is None
    assert outcome.acknowledged


def test_a_seed_is_one_run() -> None:
    assert simulate(3).trace_hash == simulate(3).trace_hash


def _acknowledge_at_once(self: Leadership, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
    callback(ErrorCode.NONE)


def _commit_what_one_replica_has(self: LeaderState, now_ms: int) -> None:
    self.high_watermark = self.local_end


@pytest.mark.parametrize(
    ("owner", "guard", "mutant"),
    [
        (Leadership, "when_committed", _acknowledge_at_once),
        (LeaderState, "_advance", _commit_what_one_replica_has),
    ],
    ids=["acks=all waits", "high watermark"],
)
def test_each_guard_is_needed(
    owner: object, guard: str, mutant: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, guard, mutant)
    violations = (simulate(seed).violation for seed in _SEEDS)
    found = next((violation.name for violation in violations if violation is not None), None)
    assert found in ("lost write", "record changed")
