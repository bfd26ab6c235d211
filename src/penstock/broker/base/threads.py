"""Threads that take jobs from one queue and give the results to the event loop.

A `ThreadPoolExecutor` does the same at three times the cost: each job has a future with a lock, which is
copied to a future of the loop. With `penstock.flush=group` a sync is a job, so a producer that waits for each
message waits for that cost, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias, TypeVar

__all__ = ["Threads"]

T = TypeVar("T")
_Job: TypeAlias = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...]]


class Threads:
    """Up to `most` threads, each started when the others are busy. Only the loop's thread calls it."""

    def __init__(self, most: int, name: str) -> None:
        self._most = most
        self._name = name
        #: None ends one thread
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[Thread] = []
        #: jobs without a result so far
        self._open = 0
        self._is_closed = False

    def run(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """The result of `function(*args)`. A job that is cancelled before a thread takes it is not run."""
        if self._is_closed:
            raise RuntimeError("the threads were told to end")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._open += 1
        self._jobs.put((future, function, args))
        if self._open > len(self._threads) < self._most:
            # A daemon: a process that ends in the middle does not wait for jobs. `close` and `join` do.
            thread = Thread(target=self._work, name=f"{self._name}_{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        return future

    def close(self) -> None:
        """Take no more jobs. The threads finish the jobs in the queue, and end."""
        self._is_closed = True
        for _ in self._threads:
            self._jobs.put(None)

    def join(self) -> None:
        """Wait until the threads have ended."""
        for thread in self._threads:
            thread.join()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function, args = job
            result, error = None, None
            if not future.cancelled():
                try:
                    result = function(*args)
                except BaseException as e:  # noqa: BLE001 - raised where the result is awaited
                    error = e
            try:
                future.get_loop().call_soon_threadsafe(self._deliver, future, result, error)
            except RuntimeError:
                # The loop is closed, so no code awaits the result.
                return
            # An idle thread keeps nothing alive.
            del job, future, function, args, result, error

    def _deliver(self, future: asyncio.Future[T], result: T, error: BaseException | None) -> None:
        self._open -= 1
        if future.cancelled():
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
