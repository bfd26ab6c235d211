"""The sending half of a connection.

Answers without file ranges, or with little in them, go through the transport, which gathers what one turn of
the loop wrote into one system call. An answer with more is queued and sent part by part on a duplicate of the
socket, ranges by `sendfile`, once the transport holds nothing unsent; whatever comes later queues behind it.
Where there is no plain socket (TLS, simulation) or no descriptor (memory), ranges are copied piece by piece.

Nothing is read before there is room for it: a peer that does not read costs us what the kernel holds for it,
and at most `HIGH_WATER` more.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.ports import Buffer, FileRange

__all__ = ["HIGH_WATER", "Output"]

#: unsent bytes at which the peer counts as slow
HIGH_WATER: Final = 1 << 20
#: an answer with no more than this in ranges is copied: one system call, and one wake-up of the peer, cost
#: less than a `sendfile` for each range
_COPIED: Final = 32 << 10
#: how much of a range is copied at a time where it cannot be sent as a file
_PIECE: Final = 256 << 10


class Output:
    """Writes answers in order; `blocked(True)`, then `blocked(False)`: a transfer waits for the peer."""

    __slots__ = (
        "_blocked",
        "_closed",
        "_loop",
        "_queue",
        "_socket",
        "_transport",
        "_waiting",
        "active_at",
        "sent",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, blocked: Callable[[bool], None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._blocked = blocked
        self._closed = False
        self._waiting = False
        #: bytes that were handed to the transport or to the socket
        self.sent = 0
        #: when the peer last took something of what is queued
        self.active_at = 0.0
        self._socket: socket.socket | None = None
        self._queue: deque[Buffer | FileRange] = deque()
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def write(self, parts: Sequence[Buffer | FileRange]) -> None:
        if self._closed:
            return
        try:
            joined = None if self._queue else _joined(parts)
        except OSError:
            # The answer cannot be sent whole: as in `_pump`.
            self._transport.abort()
            return
        if joined is not None:
            self.sent += len(joined)
            self._transport.write(joined)
            return
        self._queue.extend(parts)
        if not self._waiting:
            self._pump()

    def resume(self) -> None:
        """The transport has room again."""
        if self._waiting:
            self._pump()

    def close(self) -> None:
        self._closed = True
        self._queue.clear()
        if self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _pump(self) -> None:
        """Send from the queue until it is empty or the peer's window is full."""
        duplicate = self._duplicate()
        try:
            done = self._copy_queue() if duplicate is None else self._send_queue(duplicate)
        except OSError:
            # The peer is gone; asyncio reports it through connection_lost.
            self._transport.abort()
            return
        if done == (not self._waiting):
            return
        self._waiting = not done
        if duplicate is not None:
            if done:
                self._loop.remove_writer(duplicate.fileno())
            else:
                self._loop.add_writer(duplicate.fileno(), self._pump)
        self._blocked(self._waiting)

    def _send_queue(self, duplicate: socket.socket) -> bool:
        if self._transport.get_write_buffer_size():
            return False
        queue = self._queue
        while queue:
            part = queue[0]
            rest: Buffer | FileRange | None
            try:
                if isinstance(part, FileRange):
                    sent = _send_range(duplicate, part)
                    rest = None if sent == part.size else part.behind(sent)
                else:
                    sent = duplicate.send(part, socket.MSG_MORE if len(queue) > 1 else 0)
                    rest = None if sent == len(part) else memoryview(part)[sent:]
            except (BlockingIOError, InterruptedError):
                return False
            self.active_at = self._loop.time()
            self.sent += sent
            if rest is None:
                queue.popleft()
            else:
                queue[0] = rest
        return True

    def _copy_queue(self) -> bool:
        queue, transport = self._queue, self._transport
        while queue and transport.get_write_buffer_size() < HIGH_WATER:
            part = queue.popleft()
            if isinstance(part, FileRange):
                if part.size > _PIECE:
                    queue.appendleft(part.behind(_PIECE))
                part = part.file.pread(min(_PIECE, part.size), part.position)
            transport.write(part)
            self.sent += len(part)
            self.active_at = self._loop.time()
        return not queue

    def _duplicate(self) -> socket.socket | None:
        """A second handle on the socket, since the loop keeps the transport's own to itself."""
        if self._socket is None:
            original = self._transport.get_extra_info("socket")
            if original is None or self._transport.get_extra_info("sslcontext") is not None:
                return None
            self._socket = socket.socket(fileno=os.dup(original.fileno()))
            self._socket.setblocking(False)
        return self._socket


def _joined(parts: Sequence[Buffer | FileRange]) -> bytes | None:
    """All parts as one, None where too much of them is in files."""
    try:
        return b"".join(parts)  # type: ignore[arg-type]
    except TypeError:
        # Found before anything was copied, and cheaper than to look at each part of every answer.
        if sum(part.size for part in parts if isinstance(part, FileRange)) > _COPIED:
            return None
        return b"".join(_read(part) if isinstance(part, FileRange) else part for part in parts)


def _read(part: FileRange) -> bytes:
    data = part.read()
    if len(data) != part.size:
        raise OSError("a file is shorter than its range")
    return data


def _send_range(duplicate: socket.socket, part: FileRange) -> int:
    """Send some of a range; how much went."""
    if part.file.fileno() >= 0:
        sent = os.sendfile(duplicate.fileno(), part.file.fileno(), part.position, part.size)
    else:
        sent = duplicate.send(part.file.pread(min(_PIECE, part.size), part.position))
    if not sent:
        raise OSError("a file is shorter than its range")
    return sent
