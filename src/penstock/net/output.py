"""The sending half of a connection.

Answers without file ranges, or with little in them, go through the transport, which gathers what one turn of
the loop wrote into one system call. An answer with more is queued and sent part by part on a duplicate of the
socket, ranges by `sendfile`, once the transport holds nothing unsent; whatever comes later queues behind it.
Where there is no plain socket (TLS, simulation) or no descriptor (memory), ranges are copied piece by piece.

Nothing is read before there is room for it: a peer that does not read costs us what the kernel holds for it,
and at most `HIGH_WATER` more, or less where a client has many connections (`UnsentResponses`). While the peer
does not read, ranges of files are queued, not copied: many fetches may wait for the same records. A turn of
the loop copies one piece, and each piece is read once. Why: a piece of an encrypted file with small frames
takes milliseconds, and a peer chooses how little of it it takes.
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

#: unsent bytes at which the peer counts as slow, if its client has few connections
HIGH_WATER: Final = 1 << 20
#: an answer with no more than this in ranges is copied: one system call, and one wake-up of the peer, cost
#: less than a `sendfile` for each range
_COPIED: Final = 32 << 10
#: how much of a range is copied at a time where it cannot be sent as a file
_PIECE: Final = 128 << 10
#: an answer with more parts may be too large to be joined at once
_FEW_PARTS: Final = 8
#: stands at the head of the queue while the transport has more than it may, so that all parts are queued
_PAUSE: Final = b""


class Output:
    """Writes answers in order; calls `changed` when `is_blocked` may have changed."""

    __slots__ = (
        "_changed",
        "_closed",
        "_high_water",
        "_is_paused",
        "_loop",
        "_queue",
        "_socket",
        "_transport",
        "_waiting",
        "active_at",
        "sent",
    )

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, changed: Callable[[], None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._changed = changed
        self._closed = False
        #: whether a transfer of the queue waits for the peer
        self._waiting = False
        #: whether the transport has more unsent bytes than it may
        self._is_paused = False
        #: bytes that were handed to the transport or to the socket
        self.sent = 0
        #: when the peer last took something of what is queued
        self.active_at = 0.0
        self._socket: socket.socket | None = None
        self._queue: deque[Buffer | FileRange] = deque()
        self.limit(HIGH_WATER)

    def limit(self, high_water: int) -> None:
        """Let the peer count as slow from `high_water` unsent bytes on."""
        self._high_water = high_water
        self._transport.set_write_buffer_limits(high=high_water)

    def write(self, parts: Sequence[Buffer | FileRange]) -> None:
        if self._closed:
            return
        try:
            joined = None if self._queue or (len(parts) > _FEW_PARTS and _is_large(parts)) else _joined(parts)
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

    @property
    def unsent(self) -> int:
        """Bytes in memory that the peer has not read."""
        queued = sum([len(part) for part in self._queue if not isinstance(part, FileRange)])
        return queued + self._transport.get_write_buffer_size()

    @property
    def is_blocked(self) -> bool:
        """Whether the peer does not read."""
        return self._waiting or self._is_paused

    def pause(self) -> None:
        """The transport has more than it may."""
        self._is_paused = True
        if not self._queue:
            self._queue.append(_PAUSE)
        self._changed()

    def resume(self) -> None:
        """The transport has room again."""
        self._is_paused = False
        if self._queue and self._queue[0] is _PAUSE:
            self._queue.popleft()
        self._go_on()
        self._changed()

    def _go_on(self) -> None:
        """Send from the queue: the transport has room again, or another turn of the loop has begun."""
        if self._waiting and not self._closed:
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
        self._changed()

    def _send_queue(self, duplicate: socket.socket) -> bool:
        if self._transport.get_write_buffer_size():
            return False
        queue, copied = self._queue, False
        while queue:
            part = queue[0]
            rest: Buffer | FileRange | None
            try:
                if isinstance(part, FileRange) and part.file.fileno() < 0:
                    if copied:
                        return False
                    queue[0] = self._copied()
                    copied = True
                    continue
                if isinstance(part, FileRange):
                    sent = _send_file(duplicate, part)
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
        queue, transport, copied = self._queue, self._transport, False
        # The transport pauses, and so resumes, only beyond its limit, not at it.
        while queue and transport.get_write_buffer_size() <= self._high_water:
            part = queue[0]
            if isinstance(part, FileRange):
                if copied:
                    self._loop.call_soon(self._go_on)
                    return False
                part, copied = self._copied(), True
            queue.popleft()
            transport.write(part)
            self.sent += len(part)
            self.active_at = self._loop.time()
        return not queue

    def _copied(self) -> bytes:
        """The first piece of the range at the head of the queue, behind which the rest of it is queued."""
        part = self._queue[0]
        assert isinstance(part, FileRange)
        piece = part.file.pread_verified(min(_PIECE, part.size), part.position)
        if not piece:
            raise OSError("a file is shorter than its range")
        if len(piece) < part.size:
            self._queue.insert(1, part.behind(len(piece)))
        return piece

    def _duplicate(self) -> socket.socket | None:
        """A second handle on the socket, since the loop keeps the transport's own to itself."""
        if self._socket is None:
            original = self._transport.get_extra_info("socket")
            if original is None or self._transport.get_extra_info("sslcontext") is not None:
                return None
            self._socket = socket.socket(fileno=os.dup(original.fileno()))
            self._socket.setblocking(False)
        return self._socket


def _is_large(parts: Sequence[Buffer | FileRange]) -> bool:
    return sum(map(len, parts)) > HIGH_WATER


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


def _send_file(duplicate: socket.socket, part: FileRange) -> int:
    """Send some of a range; how much went."""
    sent = os.sendfile(duplicate.fileno(), part.file.fileno(), part.position, part.size)
    if not sent:
        raise OSError("a file is shorter than its range")
    return sent
