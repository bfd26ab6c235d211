"""Delays the deletion of records that no queue needs any more.

Why: a producer repeats a batch until it is acknowledged, and a leader recognises the batch by the last
batches of the producer in its log. A replica whose log ends before the log start of its leader starts over
there, without the batches before. If it led soon after, it would append a repeated batch once more. So
records are kept for longer than producers repeat them, and for longer than most replicas are away.
"""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["DeletionDelay"]

#: the number of times at which the log end offset is noted during the delay
_NOTES: Final = 20


class DeletionDelay:
    """Log end offsets of one partition in one leader epoch, with their times. Pure: the caller passes the
    time."""

    __slots__ = ("_delay_ms", "_notes", "_passed")

    def __init__(self, delay_ms: int) -> None:
        self._delay_ms = delay_ms
        #: (time, end of the log)
        self._notes: deque[tuple[int, int]] = deque()
        self._passed = 0

    def deletable(self, now_ms: int, end_offset: int) -> int:
        """The offset below which all records are old enough, for a log that ends at `end_offset` now."""
        notes = self._notes
        if not notes or now_ms - notes[-1][0] >= self._delay_ms // _NOTES:
            notes.append((now_ms, end_offset))
        while notes and now_ms - notes[0][0] >= self._delay_ms:
            self._passed = notes.popleft()[1]
        return self._passed
