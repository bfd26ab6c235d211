"""Receive buffers: one shared scratch for everyone, pooled ones for frames that do not fit a single read.

An idle connection owns no buffer. A frame in flight owns one that grows with what has arrived, never with
what its length field claims, and all of them together stay below `limit`: past it, a connection waits its
turn before it reads on. Buffers are recycled because a fresh megabyte costs its page faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

__all__ = ["BufferPool"]

#: a frame up to this size gets its whole buffer at once, if enough arrived to be worth it
EAGER_SIZE: Final = 2 << 20
_WORTH_IT: Final = 2 << 10
_SMALLEST: Final = 4 << 10
_KEEP_FREE: Final = 8


class BufferPool:
    """Buffers in powers of two; `held` counts the bytes handed out, and copies that somebody charged."""

    __slots__ = ("_beyond", "_free", "_waiting", "held", "limit", "scratch")

    def __init__(self, limit: int, scratch_size: int = 128 << 10) -> None:
        self.limit = limit
        self.held = 0
        self.scratch = memoryview(bytearray(scratch_size))
        self._free: dict[int, list[bytearray]] = {}
        self._waiting: list[Callable[[], None]] = []
        #: the one buffer that was granted beyond the limit
        self._beyond: bytearray | None = None

    def take(self, need: int, have: int, growing: bytearray | None) -> bytearray | None:
        """A buffer for a frame of `need` bytes of which `have` arrived, or None: then `wait` for one.

        `growing` is the buffer that it is to replace. Past the limit, what arrived is still put somewhere,
        but no more than that; of those who would grow, one may, so that some frame always gets done.
        """
        capacity = _size_class(min(need, _room_for(have)))
        beyond = self.held + capacity > self.limit
        if beyond and growing is None:
            capacity = _size_class(have)
        elif beyond and self._beyond is not None and self._beyond is not growing:
            return None
        self.held += capacity
        free = self._free.get(capacity)
        buffer = free.pop() if free else bytearray(capacity)
        if growing is not None and (beyond or growing is self._beyond):
            self._beyond = buffer
        return buffer

    def give_back(self, buffer: bytearray) -> None:
        capacity = len(buffer)
        self.held -= capacity
        if buffer is self._beyond:
            self._beyond = None
        free = self._free.setdefault(capacity, [])
        if capacity <= EAGER_SIZE and len(free) < _KEEP_FREE:
            free.append(buffer)
        self._wake()

    @property
    def is_exhausted(self) -> bool:
        return self.held > self.limit

    def charge(self, size: int) -> None:
        """Count a copy of what a frame brought that outlives its buffer; `release` it when it is gone."""
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for retry in waiting:
                retry()

    def wait(self, retry: Callable[[], None]) -> None:
        """Have `retry` called when a buffer came back; it asks again, and may have to wait again."""
        self._waiting.append(retry)


def _room_for(have: int) -> int:
    """How large a buffer may be, given what arrived: a few bytes must not claim much."""
    return max(EAGER_SIZE, 2 * have) if have >= _WORTH_IT else _SMALLEST


def _size_class(size: int) -> int:
    return max(_SMALLEST, 1 << (size - 1).bit_length())
