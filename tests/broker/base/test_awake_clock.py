"""A monotonic clock that does not count the time for which the process did not run."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.base.awake_clock import AwakeClock
from penstock.testing.simulation.loop import SimLoop
from penstock.testing.simulation.ports import SimClock


def ignore(stalled_s: float) -> None:
    """No part of a test waits for stalls."""


class SetClock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now_ms(self) -> int:
        return 7

    def monotonic(self) -> float:
        return self.now_s


def ticked(clock: AwakeClock) -> None:
    async def tick() -> None:
        clock._tick()
        clock.stop()

    asyncio.run(tick())


def test_the_clock_follows_the_system_while_ticks_come_in_time() -> None:
    system = SetClock()
    clock = AwakeClock(system, ignore)
    for _ in range(10):
        system.now_s += 0.5
        assert clock.monotonic() == system.now_s
        ticked(clock)
    assert (clock.monotonic(), clock.stalled_s, clock.now_ms()) == (105.0, 0.0, 7)


def test_a_stall_counts_no_more_than_a_late_tick_also_before_the_tick() -> None:
    """Timers that are due run before it, and judge by this clock."""
    system, stalls = SetClock(), list[float]()
    clock = AwakeClock(system, stalls.append)
    system.now_s += 3.8
    assert clock.monotonic() == 100.75
    ticked(clock)
    assert clock.monotonic() == 100.75
    assert stalls == [clock.stalled_s]
    assert clock.stalled_s == pytest.approx(3.05)
    system.now_s += 0.5
    assert clock.monotonic() == 101.25


def test_the_time_before_the_start_does_not_count() -> None:
    system = SetClock()
    clock = AwakeClock(system, ignore)
    system.now_s += 60

    async def start() -> None:
        clock.start()
        clock.stop()

    asyncio.run(start())
    assert clock.monotonic() == 100.75


def test_the_clock_ticks_without_calls() -> None:
    loop = SimLoop(0)

    async def main() -> None:
        clock = AwakeClock(SimClock(loop), ignore)
        clock.start()
        began = clock.monotonic()
        await asyncio.sleep(60)
        clock.stop()
        assert clock.monotonic() - began == pytest.approx(60)

    loop.run(main(), limit_s=61)
    loop.close()
