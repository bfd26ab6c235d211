"""How late acknowledgements are counted during a roll."""

from __future__ import annotations

import pytest

from bench.roll import late_ms


def test_an_acknowledgement_is_late_against_the_rate_of_the_producer() -> None:
    # 10 messages a second, acknowledged after 50 ms; a stall of 300 ms delays those that were sent in it
    times = [7.05, 7.15, 7.25, 7.55, 7.56, 7.57, 7.65]
    assert late_ms(times, 10) == pytest.approx([0, 0, 0, 200, 110, 20, 0], abs=1e-6)


def test_the_fastest_acknowledgement_is_the_measure() -> None:
    assert late_ms([1.5, 1.1, 1.2], 10) == pytest.approx([500, 0, 0], abs=1e-6)
