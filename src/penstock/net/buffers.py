"""Receive buffers: one shared scratch for everyone, pooled ones for frames that do not fit a single read.

An idle connection owns no buffer. A frame in flight owns one that grows with what has arrived, never with
what its length field claims. All of them together stay below `limit`, and those of one client address below
`address_limit`: past either, a connection waits its turn before it reads on. Buffers are recycled because a
fresh megabyte costs its page faults.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

__all__ = ["BufferPool"]

#: a frame up to this size gets its whole buffer at once, if enough arrived to be worth it
EAGER_SIZE: Final = 2 << 20
_WORTH_IT: Final = 2 << 10
_SMALLEST: Final = 4 << 10
_KEEP_FREE: Final = 8
#: stands for the limit of all addresses together
_ALL: Final = "*"


class BufferPool:
    """Buffers in powers of two; `held` counts the bytes handed out, and copies that somebody charged."""

    __slots__ = (
        "_beyond",
        "_free",
        "_held_by_address",
        "_waiting",
        "address_limit",
        "held",
        "limit",
        "scratch",
        "used_up",
    )

    def __init__(
        self, limit: int, address_limit: int | None = None, *, scratch_size: int = 128 << 10
    ) -> None:
        self.limit = limit
        self.address_limit = limit if address_limit is None else address_limit
        self.held = 0
        self._held_by_address: Counter[str] = Counter()
        #: the limits that are reached: `_ALL`, or an address
        self.used_up: set[str] = set()
        self.scratch = memoryview(bytearray(scratch_size))
        self._free: dict[int, list[bytearray]] = {}
        self._waiting: list[Callable[[], None]] = []
        #: the one buffer that was granted beyond the limit, and the one of each address beyond its own
        self._beyond: dict[str, bytearray] = {}

    def take(self, need: int, have: int, growing: bytearray | None, address: str = "") -> bytearray | None:
        """A buffer for a frame of `need` bytes of which `have` arrived, or None: then `wait` for one.

        `growing` is the buffer that it is to replace. Past a limit, what arrived is still put somewhere,
        but no more than that. One buffer may grow past it, so that some frame always gets done.
        """
        capacity = _size_class(min(need, _room_for(have)))
        exceeded = self._exceeded(capacity, address)
        if growing is None:
            if exceeded:
                # A full buffer could not be read into.
                capacity = _size_class(have + 1)
        elif any(self._beyond.get(limit, growing) is not growing for limit in exceeded):
            return None
        self._hold(capacity, address)
        free = self._free.get(capacity)
        buffer = free.pop() if free else bytearray(capacity)
        if growing is not None:
            for limit in (*exceeded, *self._granted_to(growing)):
                self._beyond[limit] = buffer
        return buffer

    def _granted_to(self, buffer: bytearray) -> list[str]:
        """The limits past which `buffer` was granted."""
        return [limit for limit, granted in self._beyond.items() if granted is buffer]

    def _exceeded(self, capacity: int, address: str) -> list[str]:
        """The limits that `capacity` more bytes would exceed: `_ALL` is the broker's own."""
        exceeded = []
        if self.held + capacity > self.limit:
            exceeded.append(_ALL)
        if self._held_by_address[address] + capacity > self.address_limit:
            exceeded.append(address)
        return exceeded

    def _hold(self, size: int, address: str) -> None:
        self.charge(size)
        self._held_by_address[address] += size
        if self._held_by_address[address] >= self.address_limit:
            self.used_up.add(address)
        else:
            self.used_up.discard(address)

    def scratch_of(self, address: str) -> memoryview:
        """Where to read the start of a frame: little at a time where a limit is reached."""
        return self.scratch[:_SMALLEST] if not self.used_up.isdisjoint((_ALL, address)) else self.scratch

    def give_back(self, buffer: bytearray, address: str = "") -> None:
        capacity = len(buffer)
        self._hold(-capacity, address)
        if not self._held_by_address[address]:
            del self._held_by_address[address]
        for limit in self._granted_to(buffer):
            del self._beyond[limit]
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
        if self.held >= self.limit:
            self.used_up.add(_ALL)
        else:
            self.used_up.discard(_ALL)

    def release(self, size: int) -> None:
        self.charge(-size)
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
