"""A page of many samples is built in slices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from penstock.broker.monitoring import slices


def test_other_work_runs_between_slices() -> None:
    events: list[str] = []

    def steps() -> Iterator[None]:
        for _ in range(3):
            events.append("step")
            yield

    async def run() -> None:
        asyncio.get_running_loop().call_soon(events.append, "other")
        # Every step exhausts a slice of no time.
        await slices.in_slices(steps(), 0.0)

    asyncio.run(run())
    assert events == ["step", "other", "step", "step"]


def test_short_steps_share_a_slice() -> None:
    turns: list[int] = []
    seen: list[list[int]] = []

    async def run() -> None:
        asyncio.get_running_loop().call_soon(turns.append, 1)
        await slices.in_slices(iter(range(100)), 1000.0)
        seen.append(list(turns))

    asyncio.run(run())
    assert seen == [[]]
