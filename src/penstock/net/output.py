"""The sending half of a connection.

Small answers go through the transport, which gathers what one turn of the loop wrote into one system call.
A large file range goes round it: `sendfile` on a duplicate of the socket, allowed only while the transport
holds nothing unsent; while such a transfer is under way everything else queues behind it. Transports without
a plain socket (TLS, simulation) take the copying path.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from penstock.ports import Buffer, FileRange

__all__ = ["Output"]

#: below this, copying through user space is cheaper than the extra system calls
SENDFILE_MIN: Final = 24 << 10
#: unsent bytes at which the peer counts as slow
HIGH_WATER: Final = 1 << 20


class Output:
    """Writes answers in order; `blocked(True)`, then `blocked(False)`: a transfer waits for the peer."""

    __slots__ = ("_blocked", "_closed", "_loop", "_queue", "_socket", "_transport", "_zero_copy")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, blocked: Callable[[bool], None]
    ) -> None:
        self._loop = loop
        self._transport = transport
        self._blocked = blocked
        self._closed = False
        self._socket: socket.socket | None = None
        self._queue: deque[Buffer | FileRange] = deque()
        self._zero_copy = (
            transport.get_extra_info("socket") is not None and transport.get_extra_info("sslcontext") is None
        )
        transport.set_write_buffer_limits(high=HIGH_WATER)

    def write(self, parts: Sequence[Buffer | FileRange]) -> None:
        if self._closed:
            return
        if self._queue:
            self._queue.extend(parts)
            return
        large = _largest_range(parts)
        if large < 0:
            self._transport.write(parts[0] if len(parts) == 1 else b"".join(parts))  # type: ignore[arg-type]
        elif large >= SENDFILE_MIN and self._zero_copy and not self._transport.get_write_buffer_size():
            self._queue.extend(parts)
            self._pump(first=True)
        else:
            self._transport.writelines([p.read() if isinstance(p, FileRange) else p for p in parts])

    def close(self) -> None:
        self._closed = True
        self._queue.clear()
        if self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _pump(self, first: bool = False) -> None:
        """Send from the queue until it is empty or the peer's window is full."""
        try:
            done = self._send_queue()
        except OSError:
            # The peer is gone; asyncio tells everyone else through connection_lost.
            self._transport.abort()
            return
        if done:
            if not first:
                self._loop.remove_writer(self._duplicate().fileno())
                self._blocked(False)
        elif first:
            self._loop.add_writer(self._duplicate().fileno(), self._pump)
            self._blocked(True)

    def _send_queue(self) -> bool:
        queue = self._queue
        sock = self._duplicate()
        descriptor = sock.fileno()
        while queue:
            part = queue[0]
            try:
                if isinstance(part, FileRange) and part.file.fileno() >= 0:
                    sent = os.sendfile(descriptor, part.file.fileno(), part.position, part.size)
                    if not sent and part.size:
                        raise OSError("file shorter than promised")
                    if sent < part.size:
                        queue[0] = FileRange(part.file, part.position + sent, part.size - sent)
                        continue
                else:
                    data = part.read() if isinstance(part, FileRange) else part
                    sent = sock.send(data, socket.MSG_MORE if len(queue) > 1 else 0)
                    if sent < len(data):
                        queue[0] = memoryview(data)[sent:]
                        continue
            except (BlockingIOError, InterruptedError):
                return False
            queue.popleft()
        return True

    def _duplicate(self) -> socket.socket:
        if self._socket is None:
            original = self._transport.get_extra_info("socket")
            self._socket = socket.socket(fileno=os.dup(original.fileno()))
            self._socket.setblocking(False)
        return self._socket


def _largest_range(parts: Sequence[Buffer | FileRange]) -> int:
    """The size of the largest range that `sendfile` could send; 0 if there are others only, -1 if none."""
    largest = -1
    for part in parts:
        if isinstance(part, FileRange):
            largest = max(largest, part.size if part.file.fileno() >= 0 else 0)
    return largest
