"""A lock with two queues: urgent waiters precede all others. Each queue is in order.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["UrgentLock"]


class UrgentLock:
    """`async with lock.held(is_urgent)`. A waiter may be cancelled."""

    __slots__ = ("_is_held", "_ordinary", "_urgent")

    def __init__(self) -> None:
        self._is_held = False
        self._urgent: deque[asyncio.Future[None]] = deque()
        self._ordinary: deque[asyncio.Future[None]] = deque()

    @asynccontextmanager
    async def held(self, is_urgent: bool) -> AsyncIterator[None]:
        await self._acquire(self._urgent if is_urgent else self._ordinary)
        try:
            yield
        finally:
            self._release()

    async def _acquire(self, queue: deque[asyncio.Future[None]]) -> None:
        if not self._is_held:
            self._is_held = True
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                # The lock was handed over in the same turn of the loop.
                self._release()
            raise

    def _release(self) -> None:
        """Hand the lock over to the next waiter, or free it. Cancelled waiters are skipped."""
        for queue in (self._urgent, self._ordinary):
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._is_held = False
