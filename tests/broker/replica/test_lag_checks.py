"""Checks of followers that lag: stalls of the leader do not count, and the event loop is not held."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.replica.lag_checks import LagChecks, StallAllowance
from penstock.model.steps import SLICE


def test_followers_get_the_time_for_which_the_leader_did_not_run() -> None:
    allowance = StallAllowance(1000)
    assert allowance.checked(1000) == 0
    assert allowance.checked(41_000) == 40_000
    # For more than the time that a follower may lag: three intervals of half of it.
    assert allowance.checked(41_000) == 40_000
    assert allowance.checked(41_000) == 40_000
    assert allowance.checked(41_000) == 0


def test_stalls_that_follow_each_other_add_up() -> None:
    allowance = StallAllowance(0)
    assert [allowance.checked(stalled_ms) for stalled_ms in (10, 30, 60, 60)] == [10, 30, 60, 50]


class _Clock:
    """A millisecond passes each time that it is read."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def monotonic(self) -> float:
        self.ms += 1
        return self.ms / 1000


class _Leadership:
    """Leads its partition, unless another one has taken its place; records as of when it judges followers."""

    needs_high_watermark_recovery = True

    def __init__(self, clock: _Clock, judged: list[int], *, is_current: bool = True) -> None:
        self._clock = clock
        self._judged = judged
        self.partition = SimpleNamespace(leadership=self if is_current else None)
        self.state = SimpleNamespace(isr=frozenset(), followers={})

    def tick(self, allowance_ms: int) -> None:
        self._judged.append(self._clock.ms - allowance_ms)


def test_leaderships_judge_in_slices_and_as_of_one_moment() -> None:
    clock, judged, recovered = _Clock(), list[int](), list[int]()
    led = {number: _Leadership(clock, judged) for number in range(10 * SLICE)}
    led[len(led)] = _Leadership(clock, judged, is_current=False)
    judged_at_turn: list[int] = []

    async def check() -> None:
        checks = LagChecks(
            cast(Any, SimpleNamespace(replica_lag_time_max_ms=2)),
            clock=cast(Any, clock),
            awake_clock=cast(Any, SimpleNamespace(monotonic=lambda: 0.0)),
            sessions=cast(Any, []),
            led=cast(Any, led),
            check_high_watermarks=lambda needed: recovered.append(len(list(needed))),
        )
        checks.start()
        while not recovered:
            judged_at_turn.append(len(judged))
            await asyncio.sleep(0)
        await checks.stop()

    asyncio.run(check())
    assert recovered[0] == len(led)
    assert len(judged) >= 10 * SLICE
    assert max(later - earlier for earlier, later in pairwise(judged_at_turn)) <= SLICE
    # The clock has moved by a millisecond for each slice.
    assert max(judged[: 10 * SLICE]) - min(judged[: 10 * SLICE]) <= 1
