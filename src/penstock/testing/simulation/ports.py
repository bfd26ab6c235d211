"""Ports of a simulated broker: clock, random numbers and workers. `testing.disk` has the files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from penstock.testing.simulation.loop import SimLoop

__all__ = ["SimClock", "SimRng", "SimWorkers"]

T = TypeVar("T")
#: 2026-01-01, when every simulation begins
_EPOCH_MS: Final = 1_767_225_600_000
#: how long one step of a long computation takes
_STEP_S: Final = 0.0001


class SimClock:
    """A wall clock that may be off and may jump; the monotonic one is the loop's."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._skew_ms = 0
        self._computed_s = 0.0

    def now_ms(self) -> int:
        return self.true_ms() + self._skew_ms

    def true_ms(self) -> int:
        """The right time."""
        return _EPOCH_MS + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()

    def computing(self) -> float:
        """Between two looks, a long computation does a step."""
        self._computed_s += _STEP_S
        return self._computed_s

    def jump(self, by_ms: int) -> None:
        """Set the clock ahead, or back."""
        self._skew_ms += by_ms

    def correct(self) -> None:
        """Set the clock to the right time."""
        self._skew_ms = 0


class SimRng:
    """Randomness of one node, from the seed."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def token(self, size: int) -> bytes:
        return self._rng.randbytes(size)

    def uniform(self, low: float, high: float) -> float:
        return self._rng.uniform(low, high)


class SimWorkers:
    """Threads and processes whose work is done at one moment of the time that it takes."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop

    def in_thread(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return self._loop.run_in_executor(None, function, *args)

    def in_process(self, function: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        return self._loop.run_in_executor(None, function, *args)

    def close(self) -> None:
        """Nothing runs on: a job is one event."""
