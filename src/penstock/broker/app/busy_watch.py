"""Measures how busy the event loop of a broker process is, and logs a hint if one core is not enough.

Why here: a broker without a monitoring port needs the hint as much as one that has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Final

from penstock.broker.base.logs import get_logger
from penstock.model.config import BrokerConfig
from penstock.model.ticks import until_tick

__all__ = ["BUSY", "BusyWatch", "busy_watch_of"]

log = get_logger("broker")
#: the share of a core from which on requests wait for each other noticeably
BUSY: Final = 0.8
#: the time over which the share is measured, and the least time between two hints
_WINDOW_S: Final = 60.0
_PAUSE_S: Final = 3600.0
#: how often the clocks are read: rarely, because each time wakes up an idle broker
_INTERVAL_S: Final = 10.0
_MORE_CORES: Final = "a broker uses one core: `penstock up --cores auto` starts one broker per core"
#: of a broker that `penstock up --cores` has started
_MORE_BROKERS: Final = (
    "this broker uses its whole core: larger batches, or more partitions on more brokers, relieve it "
    "(docs/cores.md)"
)


def busy_watch_of(config: BrokerConfig) -> BusyWatch:
    """The watch of a broker process, for the thread that calls this."""
    hint = _MORE_BROKERS if config.penstock_bootstrap_port else _MORE_CORES
    return BusyWatch(monotonic, thread_time, hint=hint)


class BusyWatch:
    """Compares the processor time of a thread with the time that has passed, minute by minute."""

    def __init__(self, wall_s: Callable[[], float], busy_s: Callable[[], float], *, hint: str) -> None:
        """`busy_s` is the processor time of the thread so far."""
        self._wall_s = wall_s
        self._busy_s = busy_s
        self._hint = hint
        self._began_s = wall_s()
        self._began_busy_s = busy_s()
        self._quiet_until_s = self._began_s
        self._timer: asyncio.TimerHandle | None = None
        #: the share of the last whole window
        self.share = 0.0

    def start(self) -> None:
        """Look at the clocks now and then, until `stop`."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(until_tick(loop.time(), _INTERVAL_S), self._tick)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        self.sample()
        self.start()

    def sample(self) -> None:
        """Look at the clocks; to be called more often than once a minute."""
        now = self._wall_s()
        passed = now - self._began_s
        if passed < _WINDOW_S:
            return
        busy = self._busy_s()
        self.share = (busy - self._began_busy_s) / passed
        self._began_s, self._began_busy_s = now, busy
        if self.share >= BUSY and now >= self._quiet_until_s:
            self._quiet_until_s = now + _PAUSE_S
            log.warning("loop_busy", share=round(self.share, 2), seconds=round(passed), hint=self._hint)
