"""Measures how busy the thread of the event loop is, and logs a hint if one core is not enough."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.base.logs import get_logger

__all__ = ["BUSY", "BusyWatch"]

log = get_logger("monitoring")
#: the share of a core from which on requests wait for each other noticeably
BUSY: Final = 0.8
#: the time over which the share is measured, and the least time between two hints
_WINDOW_S: Final = 60.0
_PAUSE_S: Final = 3600.0


class BusyWatch:
    """Compares the processor time of a thread with the time that has passed, minute by minute."""

    def __init__(self, wall_s: Callable[[], float], busy_s: Callable[[], float], *, hint: str) -> None:
        """`busy_s` is the processor time of the thread so far. Without a `hint`, nothing is logged."""
        self._wall_s = wall_s
        self._busy_s = busy_s
        self._hint = hint
        self._began_s = wall_s()
        self._began_busy_s = busy_s()
        self._quiet_until_s = self._began_s
        #: the share of the last whole window
        self.share = 0.0

    def sample(self) -> None:
        """Look at the clocks; to be called every second or so."""
        now = self._wall_s()
        passed = now - self._began_s
        if passed < _WINDOW_S:
            return
        busy = self._busy_s()
        self.share = (busy - self._began_busy_s) / passed
        self._began_s, self._began_busy_s = now, busy
        if self._hint and self.share >= BUSY and now >= self._quiet_until_s:
            self._quiet_until_s = now + _PAUSE_S
            log.warning("loop_busy", share=round(self.share, 2), seconds=round(passed), hint=self._hint)
