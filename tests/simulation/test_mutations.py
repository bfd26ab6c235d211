"""Brokers with one guard removed: the simulator must find each within a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.broker.flusher import Flusher
from penstock.model.errors import StorageError
from penstock.storage.flush import FlushPlan
from penstock.storage.producers import ProducerStates
from penstock.testing.simulation.scenario import simulate

_SEEDS_MAX = 40
_flush, _sync = Flusher.when_flushed, FlushPlan.sync


def acknowledge_before_sync(self: Flusher, callback: Callable[[StorageError | None], None]) -> None:
    _flush(self, lambda error: None)
    callback(None)


def never_sync(self: FlushPlan) -> None:
    """Say that everything is on the disk."""


def ignore_failed_sync(self: FlushPlan) -> None:
    try:
        _sync(self)
    except StorageError as e:
        del e


def believe_every_sequence(self: ProducerStates, *batch: Any) -> None:
    """Repeat what a producer repeats."""


#: Nothing that was on the disk before need be there: not even the metadata that a broker starts from.
_ALL_IS_LOST = {"lost write", "record changed", "committed offset regressed", "liveness"}


@pytest.mark.parametrize(
    ("owner", "guard", "mutant", "violations"),
    [
        (Flusher, "when_flushed", acknowledge_before_sync, {"lost write", "record changed"}),
        (FlushPlan, "sync", never_sync, _ALL_IS_LOST),
        (FlushPlan, "sync", ignore_failed_sync, _ALL_IS_LOST),
        (ProducerStates, "check", believe_every_sequence, {"duplicate", "sequence repeated"}),
    ],
)
def test_a_removed_guard_is_missed(
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    guard: str,
    mutant: Callable[..., None],
    violations: set[str],
) -> None:
    monkeypatch.setattr(owner, guard, mutant)
    found = next((v for v in (simulate(seed).violation for seed in range(_SEEDS_MAX)) if v is not None), None)
    assert found is not None, f"{_SEEDS_MAX} seeds did not notice"
    assert found.name in violations
