"""A limit of failed authentications per address and window.

An address beyond the limit is refused until its window has passed. Memory is bounded: an address takes a
place only after a failure, and places of passed windows are reused.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FailedLogins"]

_PLACES_MIN: Final = 1024


class FailedLogins:
    """Counts failures by address. A limit of 0 is no limit."""

    def __init__(self, limit: int, window_ms: int) -> None:
        self.limit = limit
        self._window_ms = window_ms
        #: the start of the window and the number of failures in it
        self._failures: dict[str, tuple[int, int]] = {}
        self._places_max = _PLACES_MIN

    def failed(self, address: str, now_ms: int) -> None:
        """Count a failure of an address."""
        if not self.limit:
            return
        start_ms, count = self._failures.get(address, (now_ms, 0))
        if now_ms - start_ms >= self._window_ms:
            start_ms, count = now_ms, 0
        if address not in self._failures and len(self._failures) >= self._places_max:
            self._remove_passed(now_ms)
        self._failures[address] = start_ms, count + 1

    def refuses(self, address: str, now_ms: int) -> bool:
        """Whether an address has failed too often in its window."""
        if address not in self._failures:
            return False
        start_ms, count = self._failures[address]
        if now_ms - start_ms >= self._window_ms:
            del self._failures[address]
            return False
        return count >= self.limit

    def _remove_passed(self, now_ms: int) -> None:
        self._failures = {a: f for a, f in self._failures.items() if now_ms - f[0] < self._window_ms}
        self._places_max = max(_PLACES_MIN, 2 * len(self._failures))
