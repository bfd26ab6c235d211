"""Slots for work that only a few may do at once. Clients take turns for them.

A client with a thousand pieces of work delays its own: each of the others gets the next slot but one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager

__all__ = ["FairSlots"]


class FairSlots:
    """A number of slots. Owned by the event loop's thread.

    Invariant: no slot is free while an owner waits.
    """

    __slots__ = ("_free", "_waiting")

    def __init__(self, slots: int) -> None:
        self._free = slots
        #: by owner, in the order in which they get their next slot
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}

    @asynccontextmanager
    async def slot(self, owner: Hashable) -> AsyncIterator[None]:
        """Hold a slot, once it is the owner's turn."""
        if self._free:
            self._free -= 1
        else:
            await self._turn(owner)
        try:
            yield
        finally:
            self._release()

    async def _turn(self, owner: Hashable) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if not future.cancelled():
                # It has got the slot already.
                self._release()
            raise

    def _release(self) -> None:
        while self._waiting:
            owner, futures = next(iter(self._waiting.items()))
            future = futures.popleft()
            del self._waiting[owner]
            if futures:
                # Behind the others.
                self._waiting[owner] = futures
            if not future.done():
                future.set_result(None)
                return
        self._free += 1
