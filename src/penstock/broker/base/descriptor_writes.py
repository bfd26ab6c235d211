"""Writes to descriptors without Python's buffers.

Why: a thread that blocks inside a buffered stream holds the stream's lock, and the interpreter aborts at its
end if it cannot take that lock.
"""

from __future__ import annotations

import os
import select

__all__ = ["accepts_at_once", "write_all"]


def write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes; waits for the reader of a pipe, also of one that does not block."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            poll.poll()


def accepts_at_once(descriptor: int) -> bool:
    """Whether a short write does not block: a pipe has space for 4 KB, and files always do."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(0))
