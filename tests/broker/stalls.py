"""How long a broker's event loop is held between two polls of its sockets, in CPU of its thread."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import process_time, thread_time
from typing import Final

from penstock.testing import BrokerThread

__all__ = ["LIMIT_S", "Stalls", "assert_brief", "assert_linear", "cpu", "is_brief", "measured", "scale"]

#: the rule: no request holds the loop for longer, on a machine where `scale` returns 1
LIMIT_S: Final = 0.020
#: CPU of the loop in `scale` on a machine where a Produce request of one record costs 25 µs
_REFERENCE_S: Final = 0.020


class Stalls:
    """The longest time that one iteration of the loop took, and the CPU of all iterations."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_over = False
        self._last_s = 0.0
        self._began_s = 0.0
        self.longest_s = 0.0
        self.total_s = 0.0

    async def start(self) -> None:
        self._last_s = self._began_s = thread_time()
        self._loop.call_soon(self._iteration)

    def _iteration(self) -> None:
        now = thread_time()
        self.longest_s = max(self.longest_s, now - self._last_s)
        self.total_s = now - self._began_s
        self._last_s = now
        if not self._is_over:
            self._loop.call_soon(self._iteration)

    async def stop(self) -> None:
        """Also counts the iteration that has sent the last response."""
        self._is_over = True
        self._iteration()


@contextmanager
def measured(running: BrokerThread) -> Iterator[Stalls]:
    """Measures without collections of garbage, which depend on what other tests have left."""
    loop = running.broker.stages.listening.server.loop
    stalls = Stalls(loop)
    gc.disable()
    asyncio.run_coroutine_threadsafe(stalls.start(), loop).result()
    try:
        yield stalls
    finally:
        asyncio.run_coroutine_threadsafe(stalls.stop(), loop).result()
        gc.enable()


def assert_brief(
    running: BrokerThread, send: Callable[[], object], limit_s: float = LIMIT_S, tries: int = 6
) -> None:
    """While `send` runs, the loop is never held for longer than the limit, in the best of some tries.

    The first try that is brief decides: the first one of all may compile codecs, and a busy machine spoils
    some. Work that is too long is too long in each.
    """
    held = []
    for _ in range(tries):
        with measured(running) as stalls:
            send()
        held.append(stalls.longest_s)
        if is_brief(stalls, limit_s):
            return
    raise AssertionError(f"the loop was held for {min(held):.4f} s at least: {held}")


def is_brief(stalls: Stalls, limit_s: float = LIMIT_S) -> bool:
    """Whether the loop was never held for longer than the limit, on a machine as fast as this one is now."""
    return stalls.longest_s < limit_s * scale()


def cpu(running: BrokerThread, send: Callable[[], object]) -> float:
    """CPU seconds of the broker's thread while `send` runs."""
    loop = running.broker.stages.listening.server.loop

    async def now() -> float:
        return thread_time()

    def spent() -> float:
        return asyncio.run_coroutine_threadsafe(now(), loop).result()

    gc.disable()
    try:
        began = spent()
        send()
        return spent() - began
    finally:
        gc.enable()


def assert_linear(cost: Callable[[int], float], number: int, tries: int = 12) -> None:
    """Four times as many elements cost at most five times as much, in the best of some tries.

    Small and large take turns, because the clock of a shared core changes by half from second to second.
    A quadratic cost is 16 times as high and never passes.
    """
    few = many = float("inf")
    for _ in range(tries):
        few, many = min(few, cost(number // 4)), min(many, cost(number))
        if many < 5 * few:
            return
    raise AssertionError(f"{number // 4} elements cost {few:.4f} s, {number} cost {many:.4f} s")


def scale() -> float:
    """How much slower this machine is than the one of the rule, at work like that of a broker; at least 1."""
    best = min(_work_s() for _ in range(3))
    return max(1.0, best / _REFERENCE_S)


def _work_s() -> float:
    began, table = process_time(), {}
    for i in range(40_000):
        name = f"topic-{i}"
        table[name] = [len(name), name.encode()]
    return process_time() - began
