"""Common times for periodic work."""

from __future__ import annotations

import pytest

from penstock.model.ticks import until_tick


@pytest.mark.parametrize(
    ("now_s", "interval_s", "delay_s"),
    [
        (100.0, 1.0, 1.0),
        (100.3, 1.0, 0.7),
        (100.3, 0.5, 0.2),
        (100.3, 5.0, 4.7),
        # The timer was late: the next tick is no later for it.
        (101.004, 1.0, 0.996),
        # The timer fired a little early, or the work took almost an interval: the tick counts as reached.
        (100.9995, 1.0, 1.0005),
        (100.95, 1.0, 1.05),
    ],
)
def test_the_next_multiple_of_the_interval(now_s: float, interval_s: float, delay_s: float) -> None:
    assert until_tick(now_s, interval_s) == pytest.approx(delay_s)


def test_timers_that_were_started_at_different_times_fire_together() -> None:
    starts, intervals = (17.123, 17.3, 17.777), (0.5, 1.0, 5.0)
    fired = set()
    for now_s, interval_s in zip(starts, intervals, strict=True):
        while now_s < 40:
            # Timers are late by up to a few milliseconds.
            now_s += until_tick(now_s, interval_s) + 0.003
            fired.add(round(now_s, 1))
    assert len(fired) == 46, "as many as the most frequent timer needs"


def test_a_pause_is_never_much_longer_than_the_interval() -> None:
    delays = [until_tick(step / 997, 0.5) for step in range(5000)]
    assert min(delays) > 0.05 - 1e-9
    assert max(delays) <= 0.55 + 1e-9
