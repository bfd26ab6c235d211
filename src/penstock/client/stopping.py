"""The end of an exactly-once run, requested by `Consumer.close`.

A run that is stopped begins nothing new: sleeps, loads and the start of a producer end at once. An open
transaction may go on until the deadline. Then the run abandons it. The coordinator aborts it after its
timeout, or the next producer with the same transactional id completes it.

Owned by: `Consumer`, on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

__all__ = ["Stop", "Stopped"]

T = TypeVar("T")


class Stopped(Exception):
    """The consumer was closed before the operation ended."""


class Stop:
    """Is set once, with a deadline on the clock of the event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self.deadline_s = math.inf
        self._limits: set[asyncio.Timeout] = set()

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self, timeout_s: float) -> None:
        """Stop within the timeout. A second call can only bring the deadline forward."""
        self.deadline_s = min(self.deadline_s, asyncio.get_running_loop().time() + timeout_s)
        self._event.set()
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(self.deadline_s)

    async def sleep(self, seconds: float) -> None:
        """Sleep, until the stop at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._event.wait(), seconds)

    async def interrupting(self, operation: Coroutine[Any, Any, T]) -> T:
        """Await an operation that the stop cancels; `Stopped` if it does."""
        task = asyncio.ensure_future(operation)
        stopped = asyncio.ensure_future(self._event.wait())
        try:
            await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait([task])
        if self.is_set():
            if not task.cancelled():
                task.exception()  # the stop is raised instead
            raise Stopped
        return task.result()

    @asynccontextmanager
    async def limiting(self) -> AsyncIterator[None]:
        """Cancel the body at the deadline, and raise `Stopped`."""
        limit = asyncio.timeout_at(self.deadline_s if self.is_set() else None)
        try:
            async with limit:
                self._limits.add(limit)
                try:
                    yield
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            if limit.expired():
                raise Stopped from None
            raise
