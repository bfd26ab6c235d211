"""Runs the calls of one librdkafka consumer on one thread.

From version 2.16 on, a call of `confluent_kafka.Consumer` waits while another thread is in one, which may be
a fetch whose rebalance callback waits for the event loop. So all calls are made on this thread, and a
callback that waits for the event loop makes the calls that come meanwhile.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

__all__ = ["CallThread"]

T = TypeVar("T")

#: how often a callback of librdkafka that waits for the event loop checks that the loop is open
_LOOP_STEP_S = 1.0


class CallThread:
    """Takes calls in their order. `loop` is where the callbacks of the calls wait."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._executor = ThreadPoolExecutor(1, name)
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        #: the errors of requests that failed, for the fetcher to raise
        self.errors: deque[BaseException] = deque()
        #: set when there is something new for a callback that waits
        self._news = threading.Event()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._calls.append((future, function))
        self._news.set()
        self._executor.submit(self._run_calls)
        return future

    async def call(self, function: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self.submit(function))

    def request(self, function: Callable[..., object], *arguments: Any, **options: Any) -> None:
        """Have a call made, and wait for nothing."""
        self.submit(partial(function, *arguments, **options)).add_done_callback(self._requested)

    def _requested(self, call: Future[object]) -> None:
        if (error := call.exception()) is not None:
            self.errors.append(error)

    def shut_down(self) -> None:
        """Take no more calls; those that were submitted are made."""
        self._executor.shutdown(wait=False)

    def on_loop(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Wait for the event loop, in a callback of a call; make the calls that come meanwhile."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        future.add_done_callback(lambda _: self._news.set())
        while True:
            self._news.wait(_LOOP_STEP_S)
            self._news.clear()
            is_done = future.done()
            # Those that the coroutine has submitted, too: they come before what the callback does next.
            self._run_calls()
            if is_done:
                return future.result()
            # A loop that has ended never runs the coroutine: this thread must not wait for it.
            if self._loop.is_closed():
                raise TimeoutError("the event loop of the consumer is closed")

    def _run_calls(self) -> None:
        while self._calls:
            future, function = self._calls.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function()
            except BaseException as e:  # noqa: BLE001 - it belongs to the caller
                future.set_exception(e)
            else:
                future.set_result(result)
