"""One TCP connection of the simulation: two transports and the data in flight between them.

A direction holds at most `_WINDOW` bytes that its receiver has not read. The rest waits in the sender's
transport, which pauses the writer. Everything that happens "in the kernel" (arrival, loss, resets) is an
event of the world. Calls of a protocol are queued for its process, so a paused process reads nothing, while
its kernel still receives up to one window.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol, cast

from penstock.ports import Buffer
from penstock.testing.simulation.kernel import Kernel
from penstock.testing.simulation.process import Process

__all__ = ["SimTransport", "Wire"]

_WINDOW: Final = 128 << 10
_HIGH_WATER: Final = 64 << 10
#: how long a sender goes on while nothing of it arrives
_GIVE_UP_S: Final = 15.0


class LinkState(Protocol):
    """The state of the links between hosts, as a wire reads it from its network."""

    def passes(self, source: str, target: str) -> bool: ...
    def is_down(self, host: str) -> bool: ...
    def delay_s(self, source: str, target: str, size: int) -> float: ...
    def retransmit_s(self, source: str, target: str) -> float: ...
    def split(self, size: int) -> int: ...


class SimTransport(asyncio.Transport):
    """One end. `_unsent` are bytes beyond the window, `_unread` bytes that arrived and were not read."""

    def __init__(
        self, kernel: Kernel, wire: Wire, process: Process, name: tuple[str, int], peer: tuple[str, int]
    ) -> None:
        super().__init__({"sockname": name, "peername": peer})
        self._kernel = kernel
        self._wire = wire
        self.process = process
        self.host = name[0]
        self._protocol: asyncio.BaseProtocol
        self._unsent = bytearray()
        self._unread = bytearray()
        self.in_flight = 0
        self._high, self._low = _HIGH_WATER, _HIGH_WATER // 4
        self._writing_paused = False
        self._reading = True
        self._read_queued = False
        self._eof = False
        self._closing = False
        self.attached = False
        #: the socket is closed; connection_lost has been called or is queued
        self.closed = False

    def attach(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self.attached = True
        self._queue_read()

    # -- asyncio's side

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing or self.closed

    def is_reading(self) -> bool:
        return self._reading and not self.is_closing()

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._queue_read()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = _HIGH_WATER if high is None else high
        self._low = self._high // 4 if low is None else low
        self._check_writing()

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def write(self, data: Buffer) -> None:
        if self._closing or self.closed or self.process.is_dead:
            return
        if not self._unsent and not self._writing_paused and self.in_flight + len(data) <= _WINDOW:
            # All of it leaves at once, as nearly always.
            if data:
                self.in_flight += len(data)
                self._wire.send(self, bytes(data))
            return
        self._unsent += data
        self._send()
        self._check_writing()

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        """Send the written bytes, then close; no more bytes are read."""
        if not self.is_closing():
            self._closing = True
            self._unread.clear()
            self._send()

    def abort(self) -> None:
        """Close now. The kernel still sends its bytes. If bytes were not read, the peer gets a reset."""
        if not self.closed:
            if self._unread:
                self._wire.send_reset(self)
            else:
                self._wire.send(self, None)
            self.lose(None)

    # -- sending

    def _send(self) -> None:
        """Put bytes on the wire up to the window; the FIN follows the last byte."""
        room = _WINDOW - self.in_flight
        if self._unsent and room > 0:
            data = bytes(self._unsent[:room])
            del self._unsent[: len(data)]
            self.in_flight += len(data)
            self._wire.send(self, data)
        if self._closing and not self._unsent and not self.closed:
            self._wire.send(self, None)
            self.lose(None)

    def window_opened(self, size: int) -> None:
        """The peer read something."""
        self.in_flight -= size
        if not self.closed and not self.process.is_dead:
            self._send()
            if self._writing_paused and len(self._unsent) <= self._low:
                self._kernel.deliver(self.process, self._check_writing)

    def _check_writing(self) -> None:
        if self.closed:
            return
        if not self._writing_paused and len(self._unsent) > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()
        elif self._writing_paused and len(self._unsent) <= self._low:
            self._writing_paused = False
            self._protocol.resume_writing()

    # -- receiving

    def arrived(self, data: bytes | None) -> None:
        """The kernel got a segment, or the news that there will be no more."""
        if data is None:
            self._eof = True
        elif self.is_closing():
            # The socket is closed, so the bytes cannot be read: the peer gets a reset.
            self._wire.send_reset(self)
            self.lose(None)
            return
        else:
            self._unread += data
        self._queue_read()

    def _queue_read(self) -> None:
        if not self._read_queued and self.attached and (self._unread or self._eof):
            self._read_queued = True
            self._kernel.deliver(self.process, self._read)

    def _read(self) -> None:
        self._read_queued = False
        if not self._reading or self._closing or self.closed:
            return
        if self._unread:
            read = self._hand_over()
            self._wire.opened(self, read)
            self._queue_read()
        elif self._eof and not cast(asyncio.Protocol, self._protocol).eof_received():
            self.close()

    def _hand_over(self) -> int:
        """Pass some of the received bytes to the protocol; returns their number."""
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(cast(bytearray, protocol.get_buffer(-1)))
            size = min(len(buffer), len(self._unread))
            buffer[:size] = self._take(size)
            protocol.buffer_updated(size)
            again = memoryview(cast(bytearray, protocol.get_buffer(-1)))
            if again.obj is buffer.obj and len(again) == len(buffer):
                # Another connection may read into the same buffer before anything else runs.
                buffer[:size] = b"\x01" * size
        else:
            size = len(self._unread)
            cast(asyncio.Protocol, protocol).data_received(self._take(size))
        return size

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread) if size == len(self._unread) else bytes(self._unread[:size])
        self._kernel.trace.data(data)
        del self._unread[:size]
        return data

    # -- the end

    def lose(self, error: Exception | None) -> None:
        """The socket is closed: queue connection_lost of the protocol."""
        if not self.closed:
            self.closed = True
            self._unsent.clear()
            self._unread.clear()
            if self.attached:
                self._kernel.deliver(self.process, self._protocol.connection_lost, error)


class Wire:
    """The way between two ends. `far` is the one that connected, `near` the one that accepted."""

    def __init__(
        self,
        kernel: Kernel,
        link_state: LinkState,
        caller: Process,
        server: Process,
        caller_name: tuple[str, int],
        server_name: tuple[str, int],
    ) -> None:
        self._kernel = kernel
        self._link_state = link_state
        self.far = SimTransport(kernel, self, caller, caller_name, server_name)
        self.near = SimTransport(kernel, self, server, server_name, caller_name)
        self._directions = {True: _Direction(self.far, self.near), False: _Direction(self.near, self.far)}

    @property
    def is_over(self) -> bool:
        return self.far.closed and self.near.closed and not any(d.held for d in self._directions.values())

    def accepted(self, factory: Callable[[], Any]) -> None:
        """Have the server's protocol made, in its process."""
        if not self.near.closed:
            protocol = factory()
            self.near.attach(protocol)
            protocol.connection_made(self.near)

    def send(self, source: SimTransport, data: bytes | None) -> None:
        """Let bytes, or the end of them (None), leave `source`."""
        direction = self._directions[source is self.far]
        direction.put(data)
        if not direction.moving:
            direction.since = self._kernel.time()
            self._move(direction)

    def opened(self, reader: SimTransport, size: int) -> None:
        self._directions[reader is not self.far].source.window_opened(size)

    def send_reset(self, source: SimTransport) -> None:
        """Let the other end know that this one is gone, if the news gets through."""
        direction = self._directions[source is self.far]
        direction.abandon()
        target = direction.target
        if self._link_state.passes(source.host, target.host):
            delay_s = self._link_state.delay_s(source.host, target.host, 0)
            self._kernel.world_later(delay_s, target.lose, _reset())

    def reset(self) -> None:
        """Something on the way breaks the connection, for both ends."""
        for direction in self._directions.values():
            direction.held.clear()
            direction.target.lose(_reset())

    def process_died(self, process: Process, *, silently: bool) -> None:
        for end in (self.far, self.near):
            if end.process is process and not end.closed:
                end.closed = True
                if not silently:
                    # The kernel has the written bytes, and still sends them.
                    self.send(end, None)

    def host_died(self, host: str) -> None:
        """The machine is down: its kernel sends nothing more, also for processes that died before."""
        for direction in self._directions.values():
            if direction.source.host == host:
                direction.abandon()

    def _move(self, direction: _Direction) -> None:
        """Send the first segment that is held on its way."""
        direction.moving, direction.lost = bool(direction.held), False
        if direction.held:
            source, target = direction.source.host, direction.target.host
            size = direction.take(self._link_state.split)
            self._kernel.world_later(self._link_state.delay_s(source, target, size), self._arrive, direction)

    def _arrive(self, direction: _Direction) -> None:
        source, target = direction.source, direction.target
        if not direction.held:
            direction.moving = False
        elif not self._gets_through(direction):
            self._try_again(direction)
        else:
            direction.since = self._kernel.time()
            data = direction.held.popleft()
            if not target.closed:
                target.arrived(data)
            elif data is not None and not source.closed:
                # No process has this connection any more: the machine answers with a reset.
                self._kernel.world_later(
                    self._link_state.delay_s(target.host, source.host, 0), source.lose, _reset()
                )
                direction.held.clear()
            self._move(direction)

    def _gets_through(self, direction: _Direction) -> bool:
        """Returns true if the first segment arrives; if no process takes it, the reset must arrive, too."""
        source, target = direction.source.host, direction.target.host
        refused = direction.target.closed and direction.held[0] is not None and not direction.source.closed
        return self._link_state.passes(source, target) and not (
            refused and not self._link_state.passes(target, source)
        )

    def _try_again(self, direction: _Direction) -> None:
        """The segment was lost on the way: send it again, or give up."""
        source, target = direction.source, direction.target
        if (
            direction.abandoned
            or self._link_state.is_down(source.host)
            or self._kernel.time() - direction.since > _GIVE_UP_S
        ):
            direction.held.clear()
            direction.moving = False
            source.lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))
        else:
            direction.lost = True
            retry_s = self._link_state.retransmit_s(source.host, target.host)
            self._kernel.world_later(retry_s, self._arrive, direction)


class _Direction:
    """The data in flight from one end to the other, in order."""

    __slots__ = ("abandoned", "held", "lost", "moving", "since", "source", "target")

    def __init__(self, source: SimTransport, target: SimTransport) -> None:
        self.source = source
        self.target = target
        self.held: deque[bytes | None] = deque()
        self.moving = False
        #: the first segment did not arrive, and is about to be sent again
        self.lost = False
        #: the sender is gone: lost segments are not retransmitted
        self.abandoned = False
        #: when something last arrived, or began to move
        self.since = 0.0

    def put(self, data: bytes | None) -> None:
        """Queue a segment; small ones share one, as long as it has not left."""
        last = self.held[-1] if len(self.held) > 1 else None
        if data is not None and last is not None:
            self.held[-1] = last + data
        else:
            self.held.append(data)

    def abandon(self) -> None:
        """The sender is gone: only data in flight may still arrive."""
        self.abandoned = True
        while len(self.held) > (self.moving and not self.lost):
            self.held.pop()

    def take(self, split: Callable[[int], int]) -> int:
        """Split the first segment, so that it has the bytes that leave at once; returns its size."""
        first = self.held[0]
        if not first:
            return 0
        size = split(len(first))
        if size < len(first):
            self.held[0] = first[:size]
            self.held.insert(1, first[size:])
        return size


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
