"""A few attacks before authentication; `make fuzz-authentication` runs more of them."""

from __future__ import annotations

import pytest

from tests.broker.authentication_fuzz import attack
from tests.broker.events import Events


@pytest.mark.process
def test_honest_clients_are_served_while_others_attack(events: Events) -> None:
    outcome = attack(0.0, seed=1, rounds_min=5)
    assert outcome.attacks.total() > 50, outcome
    assert len(outcome.attacks) >= 9, outcome
    assert not events.of("handler_failed"), outcome
