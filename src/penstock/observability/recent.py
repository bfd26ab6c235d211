"""Counts of the last minute, from totals that are sampled at intervals."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Recent"]

_WINDOW_S: Final = 60.0


class Recent:
    """Totals by time. Samples are bounded by their number, which is enough for two a second."""

    def __init__(self, samples_max: int = 122) -> None:
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque(maxlen=samples_max)

    def add(self, now_s: float, *totals: int) -> None:
        self._samples.append((now_s, totals))
        while self._samples[0][0] < now_s - _WINDOW_S:
            self._samples.popleft()

    def growth(self) -> tuple[int, ...]:
        """By how much each total has grown since the first sample of the window; empty without samples."""
        if not self._samples:
            return ()
        return tuple(
            last - first for first, last in zip(self._samples[0][1], self._samples[-1][1], strict=True)
        )
