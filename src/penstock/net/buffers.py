"""Receive buffers: one shared scratch for everyone, pooled ones for frames that do not fit a single read.

An idle connection owns no buffer. A frame in flight owns one that grows with what has arrived, never with
what its length field claims, and all of them together stay below `limit`: past it, a connection waits its
turn before it reads on. Buffers are recycled because a fresh megabyte costs its page faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["BufferPool"]

#: a frame up to this size gets its whole buffer at once
EAGER_SIZE: Final = 2 << 20
_SMALLEST: Final = 16 << 10
_KEEP_FREE: Final = 8


class BufferPool:
    """Buffers in powers of two; `held` counts the bytes handed out."""

    __slots__ = ("_free", "_waiting", "held", "limit", "scratch")

    def __init__(self, limit: int, scratch_size: int = 128 << 10) -> None:
        self.limit = limit
        self.held = 0
        self.scratch = memoryview(bytearray(scratch_size))
        self._free: dict[int, list[bytearray]] = {}
        self._waiting: list[Callable[[], None]] = []

    def capacity_for(self, need: int, have: int) -> int:
        """The size to take for a frame of `need` bytes of which `have` arrived."""
        wanted = need if need <= EAGER_SIZE else min(need, max(EAGER_SIZE, 2 * have))
        return max(_SMALLEST, 1 << (wanted - 1).bit_length())

    def take(self, capacity: int, *, must: bool) -> bytearray | None:
        """A buffer of `capacity` (a power of two), or None past the limit: then `wait` for one.

        What was received must be put somewhere, whatever the limit; growing is what may have to wait. One
        buffer is always granted, however large, so that no limit can stop everything.
        """
        if self.held and self.held + capacity > self.limit and not must:
            return None
        self.held += capacity
        free = self._free.get(capacity)
        return free.pop() if free else bytearray(capacity)

    def give_back(self, buffer: bytearray) -> None:
        capacity = len(buffer)
        self.held -= capacity
        free = self._free.setdefault(capacity, [])
        if capacity <= EAGER_SIZE and len(free) < _KEEP_FREE:
            free.append(buffer)
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for retry in waiting:
                retry()

    def wait(self, retry: Callable[[], None]) -> None:
        """Have `retry` called when a buffer came back; it asks again, and may have to wait again."""
        self._waiting.append(retry)
