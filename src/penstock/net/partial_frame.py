"""The start of a frame that did not arrive in one read, in a buffer of its own."""

from __future__ import annotations

from struct import Struct
from typing import Final

__all__ = ["PartialFrame", "frame_size"]

_LENGTH: Final = Struct(">i")


def frame_size(data: memoryview) -> int:
    """The size of the frame that `data` starts with; 4 while its length field is incomplete."""
    return 4 + int(_LENGTH.unpack_from(data)[0]) if len(data) >= 4 else 4


class PartialFrame:
    """Bytes that arrived and are not served: `buffer[:filled]`.

    Invariant: filled <= need unless reading was paused; then whole frames may be in the buffer, too.
    """

    __slots__ = ("_stop", "_view", "began", "buffer", "filled", "need")

    def __init__(self, buffer: bytearray, data: memoryview, began: float) -> None:
        """`buffer` has room for `data`, which is copied into it."""
        self.buffer = buffer
        self._view = memoryview(buffer)
        self._view[: len(data)] = data
        self.filled = len(data)
        #: when the first byte arrived, or when reading went on after a pause
        self.began = began
        self.measure()

    def measure(self) -> None:
        """Find out from the length field how many bytes are needed."""
        capacity, size = len(self.buffer), frame_size(self.data)
        #: the frame is whole, or the full buffer has to grow, at this number of bytes
        self.need = min(size, capacity)
        # Reading stops at the frame's end, so that nothing behind it has to be moved. Bytes of a length field
        # cost nothing to move.
        self._stop = self.need if 4 <= self.filled < size else capacity

    @property
    def is_full(self) -> bool:
        """Returns true if the rest of the frame does not fit into the buffer."""
        return self.filled == len(self.buffer) and frame_size(self.data) > self.filled

    def is_slow(self, now: float, timeout_s: float, bytes_per_s: int) -> bool:
        """Returns true if the bytes arrive more slowly than they have to, after `timeout_s` of grace."""
        return now - self.began > timeout_s + self.filled / bytes_per_s

    @property
    def data(self) -> memoryview:
        """The bytes that arrived."""
        return self._view[: self.filled]

    @property
    def space(self) -> memoryview:
        """Where the next bytes are read to."""
        return self._view[self.filled : self._stop]
