"""A coroutine waits for a deferred response."""

from __future__ import annotations

import asyncio

from penstock.broker.base.awaiting import awaited
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

    asyncio.run(main())
