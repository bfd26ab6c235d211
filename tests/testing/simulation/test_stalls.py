"""Stalls of whole processes: the invariants, and courses with brokers."""

from __future__ import annotations

import pytest

from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.options import Options
from penstock.testing.simulation.scenario import simulate
from penstock.testing.simulation.stalls import STALLS, StallInvariants


def test_a_living_broker_must_not_be_fenced() -> None:
    invariants = StallInvariants([1, 3], 7)
    invariants.looked({1: False, 2: True, 3: False}, 7)
    with pytest.raises(Violation, match="living broker fenced"):
        invariants.looked({1: False, 2: True, 3: True}, 7)


def test_the_quorum_keeps_its_leader() -> None:
    with pytest.raises(Violation, match="needless election"):
        StallInvariants([1, 3], 7).looked({}, 8)


def test_a_living_follower_stays_in_the_isr_of_a_stalled_leader() -> None:
    invariants = StallInvariants([1, 3], 7)
    invariants.looked({}, 7, [("t-0", []), ("t-1", [2])])
    with pytest.raises(Violation, match=r"brokers \[3\] of t-1"):
        invariants.looked({}, 7, [("t-0", [2]), ("t-1", [2, 3])])


@pytest.mark.parametrize("brokers", [3, 5])
@pytest.mark.parametrize("course", STALLS)
def test_a_stall_fences_no_living_broker(course: str, brokers: int) -> None:
    options = Options.draw(1, brokers).with_directed_fault(course)
    outcome = simulate(1, options)
    assert outcome.violation is None, outcome.violation
    assert not any("came to nothing" in line for line in outcome.history)
