"""Counts what each step of an asyncio event loop costs: the processor time of the loop's thread.

A step is one callback. Other clients wait for its end. The time of the thread, unlike the time on the wall,
does not depend on what else runs on the machine.
"""

from __future__ import annotations

import asyncio
from time import perf_counter_ns, thread_time_ns
from typing import NamedTuple

__all__ = ["StepMeter", "Steps"]

_MS = 1_000_000


class Steps(NamedTuple):
    """The steps of a loop since the last call of `StepMeter.take`."""

    longest_ms: float
    #: the longest step by the clock on the wall: a step that waits uses no processor time
    longest_wall_ms: float
    total_ms: float
    #: the longest step's callback
    callback: str


class StepMeter:
    """Measures all steps of this process's event loop, once `install` was called."""

    def __init__(self) -> None:
        self._longest = self._wall = self._total = 0
        self._callback: object = None

    def install(self) -> None:
        """Replace the method by which asyncio runs a callback. Only for a process of its own."""
        run = asyncio.Handle._run

        def metered(handle: asyncio.Handle) -> None:
            wall, began = perf_counter_ns(), thread_time_ns()
            run(handle)
            took, waited = thread_time_ns() - began, perf_counter_ns() - wall
            self._total += took
            if took > self._longest:
                self._longest, self._callback = took, handle
            if waited > self._wall:
                self._wall = waited

        asyncio.Handle._run = metered  # type: ignore[method-assign,assignment]

    def take(self) -> Steps:
        found = Steps(self._longest / _MS, self._wall / _MS, self._total / _MS, repr(self._callback)[:300])
        self._longest = self._wall = self._total = 0
        self._callback = None
        return found
