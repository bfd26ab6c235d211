"""Counts of the last minute."""

from __future__ import annotations

from penstock.observability.recent import Recent


def test_growth_is_that_of_the_last_minute() -> None:
    recent = Recent()
    assert recent.growth() == ()
    for step in range(400):
        recent.add(step / 2, step, 7)
    assert recent.growth() == (120, 0)


def test_samples_are_bounded() -> None:
    recent = Recent(samples_max=3)
    for step in range(100):
        recent.add(step / 1000, step)
    assert recent.growth() == (2,)
