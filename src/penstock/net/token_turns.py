"""Verifies the tokens of clients that are not authenticated in worker threads, one at a time.

The addresses of clients take turns, so many tokens of one address do not delay the token of another one. One
verification at a time leaves the other worker threads to the disks. What waits is bounded: a connection has
one token at a time, a token has a maximum size, and connections before authentication are limited.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

__all__ = ["TokenTurns"]


class TokenTurns:
    """The tokens of a listener that wait to be verified."""

    def __init__(self, in_thread: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        self._in_thread = in_thread
        #: the turns that wait by address; the first address is the next one
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        self._is_busy = False

    async def run(self, address: str, work: Callable[[], Any]) -> Any:
        """The result of `work`, in the turn of the address."""
        if self._is_busy:
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(address, deque()).append(turn)
            await turn
        self._is_busy = True
        try:
            return await self._in_thread(work)
        finally:
            self._next()

    def _next(self) -> None:
        self._is_busy = False
        while self._waiting:
            address, turns = next(iter(self._waiting.items()))
            del self._waiting[address]
            turn = turns.popleft()
            if turns:
                self._waiting[address] = turns
            if not turn.done():
                # Busy from now on: a token that comes before the turn is taken has to wait.
                self._is_busy = True
                turn.set_result(None)
                return
