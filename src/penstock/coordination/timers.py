"""Timers of a shard, by key. Pure: the runtime sets the time and takes the expired keys.

Every heartbeat postpones a session timeout, so postponing is one dictionary write. The heap keeps the old
deadline and is corrected when that deadline passes.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

__all__ = ["TimerKey", "Timers"]

TimerKey: TypeAlias = tuple[str, ...]
#: stale heap entries are removed once they outnumber the timers by this many
_SLACK: Final = 64


class Timers:
    """Deadlines in milliseconds of a monotonic clock. Scheduling a key again moves its deadline."""

    __slots__ = ("_deadlines", "_heap", "now_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self._deadlines: dict[TimerKey, int] = {}
        #: Invariant: each key has at least one entry, at its deadline or before
        self._heap: list[tuple[int, TimerKey]] = []

    def __contains__(self, key: TimerKey) -> bool:
        return key in self._deadlines

    def __len__(self) -> int:
        return len(self._deadlines)

    def schedule(self, key: TimerKey, delay_ms: int) -> None:
        deadline = self.now_ms + delay_ms
        before = self._deadlines.get(key)
        self._deadlines[key] = deadline
        if before is None or deadline < before:
            heappush(self._heap, (deadline, key))
            if len(self._heap) > 2 * len(self._deadlines) + _SLACK:
                self._heap = [(at, key) for key, at in self._deadlines.items()]
                heapify(self._heap)

    def cancel(self, key: TimerKey) -> None:
        self._deadlines.pop(key, None)

    def take_due(self, key: TimerKey) -> bool:
        """Remove a key whose deadline has passed. Returns false if there is no such timer, or not yet."""
        deadline = self._deadlines.get(key)
        if deadline is None or deadline > self.now_ms:
            return False
        del self._deadlines[key]
        return True

    @property
    def next_ms(self) -> int | None:
        """A lower bound of the earliest deadline: no timer expires before it. None without timers."""
        return self._heap[0][0] if self._heap else None

    def pop_expired(self) -> TimerKey | None:
        """Remove and return a key whose deadline has passed; None if there is none."""
        heap, deadlines = self._heap, self._deadlines
        while heap and heap[0][0] <= self.now_ms:
            _, key = heappop(heap)
            deadline = deadlines.get(key)
            if deadline is None:
                continue
            if deadline <= self.now_ms:
                del deadlines[key]
                return key
            heappush(heap, (deadline, key))
        return None
