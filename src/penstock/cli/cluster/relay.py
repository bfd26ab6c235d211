"""Relays in front of the listeners of local brokers, which can cut a broker off from the network.

For development: `penstock cluster start --relays`. Each broker listens on ports that only its relays use, and
advertises the relays' ports, so that all connections of clients and brokers pass a relay. A broker that is
cut off runs on: its connections stay, and no byte passes in either direction, as behind a network that drops
all packets. New connections are accepted and get no response. Held bytes arrive when the broker is
reconnected.

A relay knows the destination of a connection by its own port. The source is a broker if the broker's process
has the other end of the connection; `/proc` shows that without privileges, and also behind TLS.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

__all__ = ["Relays", "Route", "sources_of"]

_BUFFER_MAX: Final = 256 << 10
_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_HEXADECIMAL: Final = 16

#: brokers by the local port of connections that their processes have made
Sources: TypeAlias = Mapping[int, int]


class Route(NamedTuple):
    """A relay listens on `port` and passes connections to `target` of a broker."""

    broker: int
    host: str
    port: int
    target: int


class Relays:
    """All relays of a cluster. Owned by the thread of the event loop."""

    def __init__(self, find_sources: Callable[[], Sources]) -> None:
        self._find_sources = find_sources
        self._servers: list[asyncio.Server] = []
        self._connections: set[_Connection] = set()
        self.cut: frozenset[int] = frozenset()

    async def open(self, routes: Collection[Route]) -> None:
        loop = asyncio.get_running_loop()
        for route in routes:
            server = await loop.create_server(partial(_Near, self, route), route.host, route.port)
            self._servers.append(server)

    def cut_off(self, brokers: Collection[int]) -> None:
        """Cut exactly these brokers off; the others are connected again."""
        self.cut = frozenset(brokers)
        sources = self._find_sources() if self.cut else {}
        for connection in list(self._connections):
            connection.place(sources, self.cut)

    def opened(self, connection: _Connection) -> None:
        self._connections.add(connection)
        if self.cut:
            connection.place(self._find_sources(), self.cut)

    def closed(self, connection: _Connection) -> None:
        self._connections.discard(connection)

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.abort()


class _Connection:
    """The two ends of a relayed connection, and whether bytes may pass."""

    def __init__(self, relays: Relays, route: Route, near: _Near) -> None:
        self._relays = relays
        self._route = route
        self._near = near
        self._far: _Far | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._is_cut = False
        self.is_closed = False

    def begin(self) -> None:
        self._relays.opened(self)
        self._proceed()

    def place(self, sources: Sources, cut: Collection[int]) -> None:
        """Apply the brokers that are cut off."""
        source = sources.get(self._near.peer_port)
        is_cut = self._route.broker in cut or source in cut
        if is_cut == self._is_cut:
            return
        self._is_cut = is_cut
        for end in (self._near, self._far):
            if end is not None:
                end.hold(is_cut)
        self._proceed()

    def _proceed(self) -> None:
        """Connect to the broker, unless the connection is cut: the bytes wait at the near end."""
        if self._far is None and self._connecting is None and not self._is_cut and not self.is_closed:
            self._near.hold(True)
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, far = await loop.create_connection(lambda: _Far(self), self._route.host, self._route.target)
        except OSError:
            # A broker that is down refuses connections.
            self.abort()
            return
        self._far = far
        self._near.other, far.other = far, self._near
        if self.is_closed:
            far.abort()
        for end in (self._near, far):
            end.hold(self._is_cut)

    def ended(self) -> None:
        """One end was closed: close the other end after its last bytes."""
        if self.is_closed:
            return
        self.is_closed = True
        self._relays.closed(self)
        for end in (self._near, self._far):
            if end is not None:
                end.close()

    def abort(self) -> None:
        self.is_closed = True
        self._relays.closed(self)
        for end in (self._near, self._far):
            if end is not None:
                end.abort()


class _End(asyncio.Protocol):
    """One end: passes bytes to the other end, unless it is held or the other end is full."""

    def __init__(self) -> None:
        self.connection: _Connection
        self.other: _End | None = None
        self._transport: asyncio.Transport | None = None
        self._is_held = False
        self._is_full = False

    @property
    def peer_port(self) -> int:
        name = None if self._transport is None else self._transport.get_extra_info("peername")
        return -1 if name is None else int(name[1])

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(high=_BUFFER_MAX)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        # Reading is paused until there is another end.
        if self.other is not None and self.other._transport is not None:
            self.other._transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other._is_full = True
            self.other._read()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other._is_full = False
            self.other._read()

    def connection_lost(self, exc: Exception | None) -> None:
        self.connection.ended()

    def hold(self, is_held: bool) -> None:
        self._is_held = is_held
        self._read()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _read(self) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._is_held or self._is_full:
            transport.pause_reading()
        else:
            transport.resume_reading()


class _Near(_End):
    """The end of the client, or of the broker that connects."""

    def __init__(self, relays: Relays, route: Route) -> None:
        super().__init__()
        self.connection = _Connection(relays, route, self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # Deferred, because asyncio starts to read after connection_made, even if reading is paused.
        asyncio.get_running_loop().call_soon(self.connection.begin)


class _Far(_End):
    """The end of the broker behind the relay."""

    def __init__(self, connection: _Connection) -> None:
        super().__init__()
        self.connection = connection


def sources_of(processes: Mapping[int, int]) -> dict[int, int]:
    """The brokers by the local ports of their sockets; `processes` has the process id of each broker."""
    inodes = {inode: broker for broker, pid in processes.items() for inode in _sockets_of(pid)}
    found: dict[int, int] = {}
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                broker = inodes.get(fields[9])
                if broker is not None:
                    found[int(fields[1].rpartition(":")[2], _HEXADECIMAL)] = broker
    return found


def _sockets_of(pid: int) -> set[str]:
    """The inodes of the sockets of a process; none if it has ended."""
    found = set()
    folder = f"/proc/{pid}/fd"
    with suppress(OSError):
        for descriptor in os.listdir(folder):
            with suppress(OSError):
                target = os.readlink(f"{folder}/{descriptor}")
                if target.startswith("socket:["):
                    found.add(target[len("socket:[") : -1])
    return found
