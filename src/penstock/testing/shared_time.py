"""The time of a cluster in a test: the real one, which the test may set ahead for all brokers at once."""

from __future__ import annotations

import time

__all__ = ["SessionClock", "SharedTime"]


class SharedTime:
    """The clock of every broker of a cluster. The test's thread moves it on; any thread may read it."""

    __slots__ = ("_ahead_s", "_sessions_ahead_s", "_skipped_s")

    def __init__(self) -> None:
        self._ahead_s = 0.0
        self._skipped_s = 0.0
        self._sessions_ahead_s = 0.0

    def now_ms(self) -> int:
        return int((time.time() + self._ahead_s + self._skipped_s) * 1000)

    def monotonic(self) -> float:
        return time.monotonic() + self._ahead_s

    def sessions_monotonic(self) -> float:
        return time.monotonic() + self._sessions_ahead_s

    def step(self, seconds: float, *, sessions: bool) -> None:
        """Let time pass; for client sessions only with `sessions`, because clients live in real time."""
        if sessions:
            self._sessions_ahead_s += seconds
        self._ahead_s += seconds

    def skip(self, seconds: float) -> None:
        """Set the wall clock ahead, and leave all timeouts as they are."""
        self._skipped_s += seconds


class SessionClock:
    """The clock that members of groups are held to."""

    __slots__ = ("_time",)

    def __init__(self, shared: SharedTime) -> None:
        self._time = shared

    def now_ms(self) -> int:
        return self._time.now_ms()

    def monotonic(self) -> float:
        return self._time.sessions_monotonic()
