"""Runs loads from an object store: each once, few at a time, none for longer than a limit.

A load that fails makes reads of its partition fail at once for a while, longer each time: clients that ask
again and again do not load the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from penstock.archive.errors import ArchiveError
from penstock.model.errors import RemoteReadFailed
from penstock.ports import Clock

__all__ = ["Failures", "Loader"]

#: how long a load may take
_LOAD_S: Final = 30.0
_PAUSE_FIRST_S: Final = 0.5
_PAUSE_LIMIT_S: Final = 10.0


class Failures:
    """The failed loads of one partition."""

    __slots__ = ("_clock", "_error", "_pause_s", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._error: Exception | None = None
        self._pause_s = 0.0
        self._until = 0.0

    def failed(self, error: Exception) -> None:
        self._error = error
        self._pause_s = min(max(_PAUSE_FIRST_S, 2 * self._pause_s), _PAUSE_LIMIT_S)
        self._until = self._clock.monotonic() + self._pause_s

    def succeeded(self) -> None:
        self._error, self._pause_s = None, 0.0

    def check(self) -> None:
        """Raise RemoteReadFailed while a failure is recent."""
        if self._error is not None and self._clock.monotonic() < self._until:
            raise RemoteReadFailed(str(self._error))


class Loader:
    """The loads of one broker."""

    def __init__(
        self, parallel: int, pending_max: int, wait_s: float, on_failure: Callable[[Exception], None]
    ) -> None:
        """At most `parallel` loads run and `pending_max` wait; a request waits for `wait_s` for one."""
        self._turns = asyncio.Semaphore(parallel)
        self._pending_max = pending_max
        self._wait_s = wait_s
        self._on_failure = on_failure
        self._tasks: dict[Hashable, asyncio.Task[None]] = {}

    @property
    def has_room(self) -> bool:
        """Whether a load that no request waits for may start."""
        return not self._turns.locked() and len(self._tasks) < self._pending_max

    def start(
        self, key: Hashable, load: Callable[[], Awaitable[object]], failures: Failures
    ) -> asyncio.Task[None] | None:
        """Begin a load unless it is under way; None if there are too many."""
        task = self._tasks.get(key)
        if task is None and len(self._tasks) < self._pending_max:
            task = self._tasks[key] = asyncio.get_running_loop().create_task(self._run(load, failures))
            task.add_done_callback(lambda _: self._tasks.pop(key))
        return task

    async def load(self, key: Hashable, load: Callable[[], Awaitable[object]], failures: Failures) -> bool:
        """Wait for a load; returns false if it takes longer than a request waits. Errors go to `failures`."""
        task = self.start(key, load, failures)
        if task is None:
            # The client asks again; an answer at once would have it ask in a loop.
            await asyncio.sleep(self._wait_s)
            return False
        done, _ = await asyncio.wait([task], timeout=self._wait_s)
        return bool(done)

    async def _run(self, load: Callable[[], Awaitable[object]], failures: Failures) -> None:
        try:
            async with self._turns, asyncio.timeout(_LOAD_S):
                await load()
        except (ArchiveError, OSError) as e:
            error = e if str(e) else TimeoutError(f"no answer within {_LOAD_S:g} s")
            failures.failed(error)
            self._on_failure(error)
        else:
            failures.succeeded()

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
