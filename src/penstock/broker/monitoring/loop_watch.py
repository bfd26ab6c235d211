"""Measures how late the event loop runs timers, and the pauses of the garbage collector."""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, Final

from penstock.broker.base.metrics import Histogram
from penstock.model.ticks import until_tick

__all__ = ["LoopWatch"]

#: how often the loop is sampled, and how many samples the health report looks at
_INTERVAL_S: Final = 0.5
_RECENT: Final = 20


class LoopWatch:
    """Samples the event loop from `start` to `stop`."""

    def __init__(self, on_tick: Callable[[], None]) -> None:
        """`on_tick` is called with every sample."""
        self.lag = Histogram()
        self.gc_pauses = Histogram()
        self._recent_s: deque[float] = deque(maxlen=_RECENT)
        self._on_tick = on_tick
        self._timer: asyncio.TimerHandle | None = None
        self._gc_began = 0

    def start(self) -> None:
        gc.callbacks.append(self._collected)
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.callbacks.remove(self._collected)

    @property
    def worst_s(self) -> float:
        """The longest delay of the last ten seconds."""
        return max(self._recent_s, default=0.0)

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        due = now + until_tick(now, _INTERVAL_S)
        self._timer = loop.call_at(due, self._tick, due)

    def _tick(self, due: float) -> None:
        late = max(0.0, asyncio.get_running_loop().time() - due)
        self._recent_s.append(late)
        self.lag.observe(int(late * 1e9))
        self._on_tick()
        self._schedule()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._gc_began = perf_counter_ns()
        else:
            self.gc_pauses.observe(perf_counter_ns() - self._gc_began)
