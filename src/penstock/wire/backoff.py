"""Exponential backoff with jitter between retries."""

from __future__ import annotations

from typing import Final

__all__ = ["Backoff"]

#: How far from the middle a wait may be drawn, as a share of it (Kafka's clients use the same).
_SPREAD: Final = 0.2
#: Doubling more often than this passes any limit.
_DOUBLINGS_MAX: Final = 30


class Backoff:
    """Waits that double from `first_s` up to `limit_s`."""

    __slots__ = ("_failures", "_first_s", "_limit_s")

    def __init__(self, first_s: float, limit_s: float) -> None:
        self._first_s = first_s
        self._limit_s = limit_s
        self._failures = 0

    def failed(self, jitter: float) -> float:
        """The seconds to wait after one more failure; `jitter` is a random number between -1 and 1."""
        wait_s = min(self._limit_s, self._first_s * 2.0 ** min(self._failures, _DOUBLINGS_MAX))
        self._failures += 1
        return wait_s * (1 + _SPREAD * jitter)

    def succeeded(self) -> None:
        """Start over."""
        self._failures = 0
