"""The rate of catching up (`leader.` and `follower.replication.throttled.rate`).

A fetch is never split, so one fetch may exceed the budget: the next ones wait until it is balanced.
"""

from __future__ import annotations

__all__ = ["ReplicationThrottle"]


class ReplicationThrottle:
    """A budget that refills with time, up to one second's worth; a rate of None is no limit."""

    __slots__ = ("_budget", "_rate", "_refilled_at_ms")

    def __init__(self, bytes_per_s: int | None, now_ms: int) -> None:
        self._rate = bytes_per_s
        self._budget = float(bytes_per_s or 0)
        self._refilled_at_ms = now_ms

    def change_rate(self, bytes_per_s: int | None, now_ms: int) -> None:
        self._refill(now_ms)
        full = float(bytes_per_s or 0)
        self._budget = full if self._rate is None else min(self._budget, full)
        self._rate = bytes_per_s

    def spent(self, size: int, now_ms: int) -> None:
        if self._rate is not None:
            self._refill(now_ms)
            self._budget -= size

    def exhausted(self, now_ms: int) -> bool:
        if self._rate is None:
            return False
        self._refill(now_ms)
        return self._budget <= 0

    def open_at_ms(self, now_ms: int) -> int:
        """The time from which on more bytes may be available."""
        if self._rate is None or not self.exhausted(now_ms):
            return now_ms
        return now_ms + int(-self._budget * 1000 // max(self._rate, 1)) + 1

    def _refill(self, now_ms: int) -> None:
        if self._rate is not None:
            earned = self._rate * (now_ms - self._refilled_at_ms) / 1000
            self._budget = min(self._budget + earned, float(self._rate))
        self._refilled_at_ms = now_ms
