"""What several clients move at the same time."""

from __future__ import annotations

from bench.load import Flow, joined


def test_a_rate_is_from_the_first_that_begins_to_the_last_that_ends() -> None:
    early, late = Flow(100, 1000, 4.0, 2.0, began=10.0), Flow(300, 3000, 4.0, 1.0, began=11.0)
    both = joined([late, early])
    assert both == Flow(400, 4000, 5.0, 3.0, began=10.0)
    assert both.messages_per_second == 80
    assert joined([early]) == early
