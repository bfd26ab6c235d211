"""A few seconds of attacks before authentication; `make fuzz-authentication` runs them for longer."""

from __future__ import annotations

from tests.broker.authentication_fuzz import attack
from tests.broker.events import Events


def test_honest_clients_are_served_while_others_attack(events: Events) -> None:
    outcome = attack(2.0, seed=1)
    assert outcome.attacks.total() > 50, outcome
    assert len(outcome.during_s) >= 3, outcome
    assert not events.of("handler_failed"), outcome
