"""Brokers with one guard removed: the simulator must find each within a few seeds.

The quick part of `make mutants`: the guards that are missed soonest.
"""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, hunt

_SEEDS_MAX = 40
_QUICK = {
    "sync before acknowledgement",
    "syncs",
    "failed syncs are final",
    "sequence check",
    "one vote per epoch",
    "votes compare logs",
    "flush before fetch",
    "leader counts flushed",
    "majority commits",
    "committed-epoch rule",
    "acks=all waits",
    "high watermark of the ISR",
    "min ISR for the high watermark",
    "truncation by epoch",
}


@pytest.mark.parametrize(
    "mutant", [m for m in MUTANTS if m.guard in _QUICK], ids=lambda mutant: str(mutant.guard)
)
def test_a_removed_guard_is_missed(mutant: Mutant) -> None:
    assert hunt(mutant, _SEEDS_MAX) is not None


def test_the_quick_ones_are_there() -> None:
    assert {mutant.guard for mutant in MUTANTS} >= _QUICK
