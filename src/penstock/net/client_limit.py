"""A limit for each client, over all of its connections. What exceeds it waits, in order.

Two uses: the frames of large requests that are decoded at once, because an element of a few bytes becomes an
object of some hundred, and the computations that are in progress at once, because each holds the response
that it builds. A connection has one of either at a time, but a client may have a thousand connections.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

__all__ = ["ClientLimit"]


class ClientLimit:
    """What all clients use. Owned by the event loop's thread."""

    __slots__ = ("_limit", "_used", "_waiting")

    def __init__(self, limit: int) -> None:
        """`limit` is that of one client. More than that is used alone."""
        self._limit = limit
        self._used: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[tuple[int, asyncio.Future[None]]]] = {}

    async def enter(self, owner: Hashable, size: int) -> None:
        """Wait until `size` more is within the limit of a client; `leave` when it is not used any more."""
        if owner in self._waiting or not self._fits(owner, size):
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(owner, deque()).append((size, future))
            try:
                await future
            except asyncio.CancelledError:
                if not future.cancelled():
                    self.leave(owner, size)
                raise
        else:
            self._used[owner] = self._used.get(owner, 0) + size

    def _fits(self, owner: Hashable, size: int) -> bool:
        used = self._used.get(owner, 0)
        return not used or used + size <= self._limit

    def leave(self, owner: Hashable, size: int) -> None:
        left = self._used.pop(owner) - size
        if left:
            self._used[owner] = left
        waiting = self._waiting.get(owner)
        while waiting and (waiting[0][1].done() or self._fits(owner, waiting[0][0])):
            next_size, future = waiting.popleft()
            if not future.done():
                self._used[owner] = self._used.get(owner, 0) + next_size
                future.set_result(None)
        if waiting is not None and not waiting:
            del self._waiting[owner]
