"""Deadlines of acquisition locks. The owner checks at a deadline which locks have expired."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

__all__ = ["Lock", "LockDeadlines"]

#: entries of released locks are removed once they outnumber the runs in flight by this many
_SLACK: Final = 64


class Lock(NamedTuple):
    """Offsets that were acquired together. Parts of them may be released or renewed since."""

    deadline_ms: int
    first: int
    last: int


class LockDeadlines:
    """A heap of locks. An entry stays until its deadline, or until the heap is too large."""

    __slots__ = ("_heap", "added")

    def __init__(self) -> None:
        self._heap: list[Lock] = []
        #: locks since the beginning
        self.added = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_ms(self) -> int | None:
        """A lower bound of the earliest deadline; None without locks."""
        return self._heap[0].deadline_ms if self._heap else None

    def add(self, lock: Lock) -> None:
        heappush(self._heap, lock)
        self.added += 1

    def is_oversized(self, runs: int) -> bool:
        return len(self._heap) > 2 * runs + _SLACK

    def replace(self, locks: Iterable[Lock]) -> None:
        self._heap = list(locks)
        heapify(self._heap)

    def take_due(self, now_ms: int) -> list[Lock]:
        """Remove and return the locks whose deadline has passed."""
        due: list[Lock] = []
        while self._heap and self._heap[0].deadline_ms <= now_ms:
            due.append(heappop(self._heap))
        return due
