"""Receive buffers: one shared scratch for everyone, pooled ones for frames that do not fit a single read.

An idle connection owns no buffer. A frame in flight owns one that grows with what has arrived; what its
length field claims counts from some megabytes on. All of them together stay below `limit`, and those of one
client address below `address_limit`: past either, a connection waits its turn before it reads on. Buffers
are recycled because a fresh megabyte costs its page faults.
"""

from __future__ import annotations

from collections.abc import Callable
from mmap import mmap
from typing import Final, TypeAlias

from penstock.net.fair_slots import FairSlots

__all__ = ["BufferPool", "FrameBuffer", "is_kept"]

FrameBuffer: TypeAlias = bytearray | mmap

#: a frame up to this size gets its whole buffer at once, if enough arrived to be worth it
EAGER_SIZE: Final = 2 << 20
_WORTH_IT: Final = 2 << 10
_SMALLEST: Final = 4 << 10
#: A frame of which so much arrived gets its whole buffer. Why: what arrived is copied into a larger buffer,
#: and a copy of 32 MB holds the event loop for 30 ms. Pages that are not filled take no memory.
_WHOLE_FROM: Final = 4 << 20
_ANY_SIZE: Final = 1 << 62
_KEEP_FREE: Final = 8
#: batches that may decompress to much at the same time
_LARGE_BATCHES: Final = 2
#: batches that are checked or recompressed in worker threads at the same time
_CHECKED_BATCHES: Final = 8
#: stands for the limit of all addresses together
_ALL: Final = "*"


class BufferPool:
    """Buffers in powers of two; `held` counts the bytes in use, and copies that handlers have charged."""

    __slots__ = (
        "_beyond",
        "_free",
        "_held_by_address",
        "_used_up",
        "_waiting",
        "address_limit",
        "checked_batches",
        "first_read",
        "held",
        "large_batches",
        "limit",
        "scratch",
    )

    def __init__(
        self,
        limit: int,
        address_limit: int | None = None,
        scratch_size: int = 128 << 10,
        *,
        scratch: memoryview | None = None,
    ) -> None:
        """`scratch` is that of another pool, to share it."""
        self.limit = limit
        self.address_limit = limit if address_limit is None else address_limit
        self.held = 0
        #: taken by checks of batches that decompress to much: their memory is not that of requests
        self.large_batches = FairSlots(_LARGE_BATCHES)
        #: taken by all checks of batches in worker threads, which other work needs as well
        self.checked_batches = FairSlots(_CHECKED_BATCHES)
        self.scratch = memoryview(bytearray(scratch_size)) if scratch is None else scratch
        #: where the start of a frame is read to: all of `scratch`, and little while a limit is reached
        self.first_read = self.scratch
        self._held_by_address: dict[str, int] = {}
        #: the limits that are reached: `_ALL`, or an address
        self._used_up: set[str] = set()
        self._free: dict[int, list[FrameBuffer]] = {}
        self._waiting: list[Callable[[], None]] = []
        #: the one buffer that was granted beyond each limit
        self._beyond: dict[str, FrameBuffer] = {}

    def take(
        self, need: int, have: int, growing: FrameBuffer | None, address: str = ""
    ) -> FrameBuffer | None:
        """A buffer for a frame of `need` bytes of which `have` arrived, or None: then `wait` for one.

        `growing` is the buffer that it is to replace. Past a limit, what arrived is still put somewhere,
        but no more than that. One buffer may grow past it, so that some frame always gets done.
        """
        capacity = _size_class(min(need, _room_for(have)))
        held_by_address = self._held_by_address.get(address, 0)
        exceeded = []
        if self.held + capacity > self.limit:
            exceeded.append(_ALL)
        if held_by_address + capacity > self.address_limit:
            exceeded.append(address)
        if exceeded:
            if growing is None:
                # A full buffer could not be read into.
                capacity = _size_class(have + 1)
            elif any(self._beyond.get(limit, growing) is not growing for limit in exceeded):
                return None
        self.held += capacity
        self._held_by_address[address] = held_by_address + capacity
        free = self._free.get(capacity)
        buffer = free.pop() if free else _new(capacity)
        if exceeded or self._beyond:
            if growing is not None:
                for limit in (*exceeded, *self._granted_to(growing)):
                    self._beyond[limit] = buffer
            self._note_use(address)
        return buffer

    def _granted_to(self, buffer: FrameBuffer) -> list[str]:
        """The limits past which `buffer` was granted."""
        return [limit for limit, granted in self._beyond.items() if granted is buffer]

    def _note_use(self, address: str) -> None:
        """Have frames begin with small reads while a limit is reached."""
        used_up = self._used_up
        (used_up.add if self.held >= self.limit else used_up.discard)(_ALL)
        over = self._held_by_address.get(address, 0) >= self.address_limit
        (used_up.add if over else used_up.discard)(address)
        self.first_read = self.scratch[:_SMALLEST] if used_up else self.scratch

    def give_back(self, buffer: FrameBuffer, address: str = "") -> None:
        capacity = len(buffer)
        self.held -= capacity
        held_by_address = self._held_by_address[address] - capacity
        if held_by_address:
            self._held_by_address[address] = held_by_address
        else:
            del self._held_by_address[address]
        if self._beyond:
            for limit in self._granted_to(buffer):
                del self._beyond[limit]
        if self._used_up:
            self._note_use(address)
        free = self._free.setdefault(capacity, [])
        # Not a large one, which handlers may have kept (`is_kept`).
        if capacity <= EAGER_SIZE and len(free) < _KEEP_FREE:
            free.append(buffer)
        self._wake()

    def charge(self, size: int, address: str = "") -> None:
        """Count a copy of what a frame brought that outlives its buffer; `release` it when it is gone."""
        self.held += size
        if size and address:
            self._held_by_address[address] = self._held_by_address.get(address, 0) + size

    def release(self, size: int, address: str = "") -> None:
        self.held -= size
        if size and address:
            left = self._held_by_address.pop(address) - size
            if left:
                self._held_by_address[address] = left
        self._wake()

    def _wake(self) -> None:
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            for retry in waiting:
                retry()

    def wait(self, retry: Callable[[], None]) -> None:
        """Call `retry` when a buffer is returned; it tries again, and may have to wait again."""
        self._waiting.append(retry)


def _new(capacity: int) -> FrameBuffer:
    """A buffer. The pages of a large one are made when they are filled: to clear 64 MB takes 30 ms."""
    return bytearray(capacity) if capacity <= _WHOLE_FROM else mmap(-1, capacity)


def is_kept(frame: memoryview) -> bool:
    """Whether the bytes of a frame outlive its request: its buffer is not used again (`give_back`)."""
    return isinstance(frame.obj, mmap)


def _room_for(have: int) -> int:
    """How large a buffer may be, given what arrived: a few bytes must not claim much."""
    if have >= _WHOLE_FROM:
        return _ANY_SIZE
    return max(EAGER_SIZE, 2 * have) if have >= _WORTH_IT else _SMALLEST


def _size_class(size: int) -> int:
    return max(_SMALLEST, 1 << (size - 1).bit_length())
