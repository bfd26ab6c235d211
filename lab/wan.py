"""A network far away: TCP proxies with a delay, lost packets, and cuts of one direction.

A lost packet is what TCP makes of it: all that follows it waits for a round trip. Windows of connections are
not those of a long line: their buffers are as large as the delay needs.

    with Wan() as wan:
        port = wan.add(broker_port)
        wan.delay_s = 0.04  # in each direction
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, cast

import uvloop

__all__ = ["FROM", "TO", "Wan"]

_HOST: Final = "127.0.0.1"
#: the directions, as seen by the broker behind a proxy
TO, FROM = "to", "from"
_SEGMENT: Final = 1448
#: on its way in one direction of one connection
_IN_FLIGHT_MAX: Final = 256 << 20
_WRITE_BUFFER: Final = 32 << 20
_PATIENCE_S: Final = 60.0


class Wan:
    """Runs in a thread of its own. What it is set to holds for all proxies, from then on."""

    def __init__(self, seed: int = 0) -> None:
        self.delay_s = 0.0
        #: the share of packets that is lost
        self.loss = 0.0
        self.random = random.Random(seed)
        self._cut: frozenset[str] = frozenset()
        self._ways: set[_Way] = set()
        self._servers: list[asyncio.AbstractServer] = []
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wan", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_PATIENCE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(self, port: int, listen: int = 0) -> int:
        """A proxy before a port of this machine, on `listen` or any free port; returns its own port."""
        return asyncio.run_coroutine_threadsafe(self._add(port, listen), self._loop).result(_PATIENCE_S)

    def cut(self, directions: Iterable[str] = (TO, FROM)) -> None:
        """Let nothing pass in these directions. Connections stay, and get it all once the cut is healed."""
        self._cut = frozenset(directions)

    def heal(self) -> None:
        self._cut = frozenset()
        self._loop.call_soon_threadsafe(self._resume)

    def is_cut(self, direction: str) -> bool:
        return direction in self._cut

    def added(self, way: _Way) -> None:
        self._ways.add(way)

    def removed(self, way: _Way) -> None:
        self._ways.discard(way)

    def _resume(self) -> None:
        for way in list(self._ways):
            way.deliver()

    async def _add(self, port: int, listen: int) -> int:
        server = await self._loop.create_server(lambda: _Near(self, port), _HOST, listen)
        self._servers.append(server)
        return int(cast("asyncio.Server", server).sockets[0].getsockname()[1])

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        for way in list(self._ways):
            way.abort()
        # Aborted transports are closed after this turn of the loop.
        await asyncio.sleep(0)


class _Way(asyncio.Protocol):
    """One end of a connection: what arrives here leaves at the other end, later."""

    def __init__(self, wan: Wan, direction: str) -> None:
        self._wan = wan
        self._direction = direction
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.other: _Way | None = None
        #: when each piece is due; an empty one is the end
        self._queue: list[tuple[float, bytes]] = []
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(_WRITE_BUFFER)
        self._wan.added(self)

    def data_received(self, data: bytes) -> None:
        self._put(data)
        if self._bytes > _IN_FLIGHT_MAX and self._transport is not None:
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._put(b"")

    def pause_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other._transport is not None:
            with suppress(RuntimeError):
                self.other._transport.resume_reading()

    def _put(self, data: bytes) -> None:
        now, wan = self._loop.time(), self._wan
        due = now + wan.delay_s
        segments = 1 + len(data) // _SEGMENT
        if wan.loss and wan.random.random() > (1 - wan.loss) ** segments:
            due += 2 * wan.delay_s
        if self._queue:
            due = max(due, self._queue[-1][0])
        self._queue.append((due, data))
        self._bytes += len(data)
        if len(self._queue) == 1:
            self.deliver()

    def deliver(self) -> None:
        """Pass on what is due, unless the direction is cut."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        other = self.other
        if self._wan.is_cut(self._direction) or other is None or other._transport is None:
            return
        now, sent = self._loop.time(), 0
        for due, data in self._queue:
            if due > now:
                self._timer = self._loop.call_at(due, self.deliver)
                break
            sent += 1
            if other._transport.is_closing():
                self._wan.removed(self)
            elif data:
                other._transport.write(data)
                self._bytes -= len(data)
            else:
                other._transport.close()
                self._wan.removed(self)
        del self._queue[:sent]
        if sent and self._bytes <= _IN_FLIGHT_MAX and self._transport is not None:
            with suppress(RuntimeError):
                self._transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Near(_Way):
    """The end of the client, which connects to the broker."""

    def __init__(self, wan: Wan, port: int) -> None:
        super().__init__(wan, TO)
        self._port = port
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        far = _Way(self._wan, FROM)
        far.other = self
        try:
            await self._loop.create_connection(lambda: far, _HOST, self._port)
        except OSError:
            self.abort()
            return
        self.other = far
        self.deliver()
