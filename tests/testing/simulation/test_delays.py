"""The checker of delay topics on histories that break one rule each."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.delays import DelayChecker, Delays
from penstock.testing.simulation.ports import SimClock


def checker(*, is_punctual: bool = True) -> DelayChecker:
    """One message is acknowledged, and the outcome of another one is unknown."""
    made = DelayChecker(is_punctual=is_punctual)
    made.due_ms = {b"a": 1000, b"b": 2000}
    made.acknowledged = {b"a"}
    return made


def test_a_message_of_unknown_outcome_may_be_there() -> None:
    checker().finish([b"a"])
    checker().finish([b"b", b"a"])


def test_an_acknowledged_message_is_not_lost() -> None:
    with pytest.raises(Violation, match="delayed message lost"):
        checker().finish([b"b"])


@pytest.mark.parametrize("value", [b"a", b"b"])
def test_no_message_is_written_twice(value: bytes) -> None:
    with pytest.raises(Violation, match="delayed message written twice"):
        checker().finish([b"a", b"b", value])


def test_no_message_is_early_unless_clocks_jump() -> None:
    checker().seen(b"a", 0, 1000)
    checker(is_punctual=False).seen(b"a", 0, 999)
    with pytest.raises(Violation, match="delayed message early"):
        checker().seen(b"a", 0, 999)


def test_a_reader_finds_no_message_twice() -> None:
    found = checker()
    found.seen(b"a", 3, 1000)
    found.seen(b"a", 3, 1001)
    with pytest.raises(Violation, match="delayed message written twice"):
        found.seen(b"a", 4, 1002)


def test_a_leader_whose_clock_is_behind_loses_no_message() -> None:
    """It delivers late: the clocks are corrected before the messages are counted."""
    loop: Any = SimpleNamespace(time=lambda: 1.0)
    clock = SimClock(loop)
    right_ms = clock.now_ms()
    clock.jump(-3_600_000)

    async def spawn(_: Any, work: Any) -> list[tuple[int, bytes]]:
        work.close()
        return [(0, b"a")] if clock.now_ms() == right_ms else []

    cluster: Any = SimpleNamespace(
        admin=SimpleNamespace(process=SimpleNamespace(spawn=spawn)),
        loop=loop,
        nodes=[SimpleNamespace(clock=clock)],
    )
    delays = Delays(cluster, lambda violation: None, is_punctual=False)
    delays.checker = checker()
    asyncio.run(delays.verify())
