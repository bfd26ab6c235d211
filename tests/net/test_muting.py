"""Held and muted connections: when requests are served again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf

from penstock.net.muting import Muting
from tests.net.time_by_hand import TimeByHand


def with_time(scenario: Callable[[TimeByHand, Muting, list[str]], None]) -> None:
    async def main() -> None:
        clock, ends = TimeByHand(), list[str]()
        scenario(clock, Muting(clock.as_loop, lambda: ends.append("end"), lambda: None), ends)

    asyncio.run(main())


def test_a_shorter_time_does_not_end_a_longer_one() -> None:
    def scenario(clock: TimeByHand, muting: Muting, ends: list[str]) -> None:
        assert muting.mute(5.0)
        assert not muting.mute(2.0)
        clock.advance(4.9)
        assert not ends
        clock.advance(0.2)
        assert (ends, muting.until) == (["end"], 0.0)

    with_time(scenario)


def test_a_longer_time_replaces_a_shorter_one() -> None:
    def scenario(clock: TimeByHand, muting: Muting, ends: list[str]) -> None:
        assert muting.mute(1.0)
        assert muting.mute(3.0)
        clock.advance(2.0)
        assert not ends
        clock.advance(1.1)
        assert ends == ["end"]

    with_time(scenario)


def test_a_held_connection_waits_for_its_release() -> None:
    def scenario(clock: TimeByHand, muting: Muting, ends: list[str]) -> None:
        muting.hold()
        assert (muting.is_held, muting.until) == (True, inf)
        assert not muting.mute(1.0)
        clock.advance(1e6)
        assert muting.is_held
        muting.release()
        assert (muting.is_held, muting.until, ends) == (False, 0.0, [])

    with_time(scenario)


def test_nothing_happens_after_the_end_of_the_connection() -> None:
    def scenario(clock: TimeByHand, muting: Muting, ends: list[str]) -> None:
        muting.mute(1.0)
        muting.close()
        clock.advance(2.0)
        assert ends == []

    with_time(scenario)
