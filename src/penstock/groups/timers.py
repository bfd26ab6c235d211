"""What is to happen later, by key. Pure: whoever drives it says what time it is and asks what is due.

Moving a deadline further away, which every heartbeat does, is one dictionary write: the heap learns of it
when the old deadline comes up.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

__all__ = ["TimerKey", "Timers"]

TimerKey: TypeAlias = tuple[str, ...]
#: entries that no longer mean anything are swept once there are this many more of them than of the others
_SLACK: Final = 64


class Timers:
    """Deadlines in milliseconds of the driver's clock; scheduling a key again moves its deadline."""

    __slots__ = ("_deadlines", "_heap", "now_ms")

    def __init__(self) -> None:
        self.now_ms = 0
        self._deadlines: dict[TimerKey, int] = {}
        #: at least one entry per key, at its deadline or before
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

    @property
    def next_ms(self) -> int | None:
        """When to look again: nothing is due before. It may turn out that nothing is due then either."""
        return self._heap[0][0] if self._heap else None

    def pop_expired(self) -> TimerKey | None:
        """A key whose deadline has come, and which is scheduled no longer; None if there is none."""
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
