"""A clock whose monotonic time stands still while this process does not run.

Timeouts of other nodes, group members and transactions are measured with it. Why: a process that was stopped,
swapped out, or starved of processor time has not read the heartbeats that have arrived meanwhile. Their
absence proves nothing, so the time for which this process was away does not count against the senders.

A timer ticks every half second. From one tick to the next at most `_COUNTED_S` count, however late the second
one is. So the clock is right also before the first tick after a stall: timers whose time has passed run
before any bytes are read, in any order.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from penstock.model.ticks import until_tick
from penstock.ports import Clock

__all__ = ["AwakeClock"]

_INTERVAL_S: Final = 0.5
#: the longest time between two ticks that counts
_COUNTED_S: Final = 0.75


class AwakeClock:
    """A `Clock`. Its wall clock is that of the system; its monotonic clock runs from `start` to `stop`."""

    __slots__ = ("_awake_s", "_monotonic", "_on_stall", "_ticked_s", "_timer", "now_ms", "stalled_s")

    def __init__(self, clock: Clock, on_stall: Callable[[float], None]) -> None:
        """`on_stall` is called after a stall with its seconds."""
        self.now_ms = clock.now_ms
        self._monotonic = clock.monotonic
        self._ticked_s = clock.monotonic()
        #: this clock at the last tick
        self._awake_s = self._ticked_s
        self._timer: asyncio.TimerHandle | None = None
        #: the seconds that did not count
        self.stalled_s = 0.0
        self._on_stall = on_stall

    def monotonic(self) -> float:
        passed_s = self._monotonic() - self._ticked_s
        return self._awake_s + (passed_s if passed_s < _COUNTED_S else _COUNTED_S)

    def start(self) -> None:
        # The time before counts as a stall: a start may load logs for minutes.
        self._awake_s, self._ticked_s = self.monotonic(), self._monotonic()
        self._schedule()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(until_tick(loop.time(), _INTERVAL_S), self._tick)

    def _tick(self) -> None:
        now_s = self._monotonic()
        stalled_s = now_s - self._ticked_s - _COUNTED_S
        self._awake_s, self._ticked_s = self.monotonic(), now_s
        self._schedule()
        if stalled_s > 0:
            self.stalled_s += stalled_s
            self._on_stall(stalled_s)
