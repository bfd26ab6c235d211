"""The pause before a broker is started again."""

from __future__ import annotations

from penstock.cli.machine.supervisor import Backoff


def test_the_pause_doubles_up_to_half_a_minute() -> None:
    backoff = Backoff()
    assert [backoff.after(0.1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]


def test_a_broker_that_ran_for_a_minute_is_started_again_soon() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.after(1)
    assert backoff.after(60) == 1
    assert backoff.after(1) == 2
