"""The start of a frame that did not arrive in one read, in a buffer of its own."""

from __future__ import annotations

from typing import Final

from penstock.net.buffers import FrameBuffer

__all__ = ["PartialFrame"]

#: The most bytes of one read into a large buffer. Why: libuv reads up to 32 times before it serves another
#: connection, and 32 MB into new pages take 35 ms.
_READ_MAX: Final = 256 << 10
_LARGE: Final = 4 << 20


class PartialFrame:
    """Bytes that arrived and are not served: `view[:filled]`.

    Invariant: filled <= need unless reading was paused; then whole frames may be in the buffer, too.
    Why the connection slices `view` itself: a large request needs several reads, and each is on the hot path.
    """

    __slots__ = ("began", "buffer", "filled", "need", "stop", "view")

    def __init__(self, buffer: FrameBuffer, data: memoryview, size: int, began: float) -> None:
        """Copy `data`, the start of a frame of `size` bytes, into `buffer`, which has room for it."""
        self.buffer = buffer
        self.view = view = memoryview(buffer)
        self.filled = have = len(data)
        view[:have] = data
        #: when the first byte arrived, or when reading went on after a pause
        self.began = began
        # As in `measure`, without the call.
        capacity = len(buffer)
        #: at this number of bytes the frame is whole, the full buffer has to grow, or a large read has ended
        self.need = size if size < capacity else capacity
        #: Reading stops at the frame's end, so that nothing behind it has to be moved. Bytes behind an
        #: incomplete length field cost nothing to move.
        self.stop = self.need if 4 <= have < size else capacity
        if capacity > _LARGE:
            self.measure(size)

    def measure(self, size: int) -> None:
        """Set how far to read for a frame of `size` bytes; 4 while the length field is incomplete."""
        capacity = len(self.buffer)
        self.need = min(size, capacity)
        if capacity > _LARGE and self.filled < self.need:
            self.need = min(self.need, self.filled + _READ_MAX)
        self.stop = self.need if 4 <= self.filled < size else capacity

    def is_slow(self, now: float, timeout_s: float, bytes_per_s: int) -> bool:
        """Returns true if the bytes arrive more slowly than they have to, after `timeout_s` of grace."""
        return now - self.began > timeout_s + self.filled / bytes_per_s
