"""Splits a byte stream into frames, without copying large ones.

Bytes are read into the reader's buffer and a frame is a view of it, so a buffer is never written again once a
frame of it was returned. A frame that does not fit into the rest of its buffer moves to a buffer of its own;
only the bytes received so far are copied. Beyond `EAGER_SIZE` a buffer grows with the received bytes, not
with the length field. The last two large buffers are reused if no view of them exists, so that one frame can
be processed while the next arrives. Why: a new megabyte costs its page faults.
"""

from __future__ import annotations

import struct
from typing import Final

from penstock.model.errors import ProtocolError
from penstock.ports import Buffer

__all__ = ["MAX_FRAME_BYTES", "FrameReader"]

#: As large as a response may be; a broker's fetch limit is half of it.
MAX_FRAME_BYTES: Final = 100 << 20
#: A frame up to this size gets all of its buffer at once.
EAGER_SIZE: Final = 16 << 20
#: Buffers up to this size are kept for the next large frames, so many of them.
_KEPT_SIZE: Final = 4 << 20
_KEPT: Final = 2
#: The size of a buffer for small frames.
_CHUNK_SIZE: Final = 64 << 10
#: Less room than this is not worth a read.
_SMALLEST_READ: Final = 4 << 10
_PREFIX: Final = 4
_unpack_size: Final = struct.Struct(">i").unpack_from


class FrameReader:
    """Cuts a stream into frames of at most `max_bytes`; holds at most one incomplete frame."""

    __slots__ = ("_end", "_kept", "_max_bytes", "_start", "_view")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: list[bytearray] = []
        # The received bytes that are no whole frame yet: `_view[_start:_end]`.
        self._view = memoryview(b"")
        self._start = 0
        self._end = 0

    def get_buffer(self) -> memoryview:
        """Where the next bytes go; never empty."""
        if self._end == len(self._view):
            assert self._start == self._end, "a full buffer is replaced as soon as it is full"
            self._view = memoryview(bytearray(_CHUNK_SIZE))
            self._start = self._end = 0
        return self._view[self._end :]

    def received(self, size: int) -> list[memoryview]:
        """The frames, without their sizes, that `size` more bytes in the buffer complete."""
        view, start = self._view, self._start
        self._end = end = self._end + size
        if (
            end - start >= _PREFIX
            and _unpack_size(view, start)[0] == end - start - _PREFIX <= self._max_bytes
        ):
            # One frame and nothing else, which is the usual.
            self._start = end
            if len(view) - end < _SMALLEST_READ:
                self._make_room(_PREFIX)
            return [view[start + _PREFIX : end]]
        frames = []
        need = _PREFIX
        while end - start >= _PREFIX:
            (length,) = _unpack_size(view, start)
            if not 0 <= length <= self._max_bytes:
                raise ProtocolError(f"frame of {length} bytes")
            need = _PREFIX + length
            if end - start < need:
                break
            frames.append(view[start + _PREFIX : start + need])
            start += need
            need = _PREFIX
        self._start = start
        self._make_room(need)
        return frames

    def feed(self, data: Buffer) -> list[memoryview]:
        """Like `received`, for bytes in a buffer of the caller."""
        rest = memoryview(data)
        frames = []
        while rest:
            room = self.get_buffer()
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            frames += self.received(size)
            rest = rest[size:]
        return frames

    def _make_room(self, need: int) -> None:
        """See to it that the incomplete frame, of `need` bytes as far as we know, can go on."""
        capacity, have = len(self._view), self._end - self._start
        if not have:
            if capacity - self._end < _SMALLEST_READ:
                self._view = memoryview(b"")
                self._start = self._end = 0
            return
        misplaced = self._start > 0 and self._start + need > capacity
        if not misplaced and self._end < capacity:
            return
        size = max(_CHUNK_SIZE, min(need, max(EAGER_SIZE, 2 * have)))
        view = self._allocate(size)
        view[:have] = self._view[self._start : self._end]
        self._view, self._start, self._end = view, 0, have

    def _allocate(self, size: int) -> memoryview:
        """A buffer of `size` bytes for one frame, perhaps one that was used before."""
        if not _CHUNK_SIZE < size <= _KEPT_SIZE:
            return memoryview(bytearray(size))
        for buffer in self._kept:
            if len(buffer) >= size and _is_free(buffer):
                return memoryview(buffer)[:size]
        made = bytearray(1 << (size - 1).bit_length())
        self._kept = [made, *self._kept][:_KEPT]
        return memoryview(made)[:size]


def _is_free(buffer: bytearray) -> bool:
    """Whether no view of `buffer` is left: only then may its size change, so Python knows."""
    try:
        del buffer[-1:]
    except BufferError:
        return False
    buffer.append(0)
    return True
