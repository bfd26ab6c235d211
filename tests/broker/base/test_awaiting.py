"""A coroutine waits for a deferred response."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.base.awaiting import awaited, uninterrupted
from penstock.net.deferred import Deferred


def test_the_value_of_a_deferred_is_returned_before_and_after_it_is_resolved() -> None:
    async def main() -> None:
        early: Deferred[int] = Deferred()
        waiting = asyncio.ensure_future(awaited(early))
        await asyncio.sleep(0)
        early.resolve(1)
        assert await waiting == 1
        late: Deferred[int] = Deferred()
        late.resolve(2)
        assert await awaited(late) == 2

    asyncio.run(main())


def test_a_response_that_comes_after_the_task_was_cancelled_is_dropped() -> None:
    async def main() -> None:
        response: Deferred[int] = Deferred()
        waiting = asyncio.ensure_future(awaited(response))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        response.resolve(1)
        assert waiting.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("fails", [False, True])
def test_a_step_is_run_to_its_end_before_the_task_is_cancelled(fails: bool) -> None:
    async def main() -> None:
        goes_on, steps = asyncio.Event(), list[str]()

        async def step() -> int:
            steps.append("begun")
            await goes_on.wait()
            steps.append("ended")
            if fails:
                raise ValueError("an error of the step")
            return 1

        running = asyncio.ensure_future(uninterrupted(step()))
        for _ in range(2):
            await asyncio.sleep(0)
            running.cancel()
        await asyncio.sleep(0)
        assert steps == ["begun"] and not running.done()
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert steps == ["begun", "ended"]

    asyncio.run(main())


def test_a_step_that_is_not_cancelled_returns_its_result_or_raises_its_error() -> None:
    async def step(divisor: int) -> int:
        return 6 // divisor

    assert asyncio.run(uninterrupted(step(2))) == 3
    with pytest.raises(ZeroDivisionError):
        asyncio.run(uninterrupted(step(0)))
