"""The network between the brokers of a cluster in a test: links that can be cut.

A cut link behaves like a network that drops all packets: connections stay, no data arrives, and no new
connection is made. No data is lost, because TCP would retransmit it: it arrives when the link heals.

Each broker's event loop puts a `Gate` around the connections that it makes to other brokers. The accepting
side needs none: to it, bytes that the gate holds back are still on the network.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from penstock.ports import Buffer

__all__ = ["Gate", "Link", "Links", "stop_listening"]

#: two brokers, in either order
Link: TypeAlias = frozenset[int]


class Links:
    """Which links are cut. The test's thread changes it, any thread may read it."""

    __slots__ = ("_cut", "_owners")

    def __init__(self, owners: Mapping[int, int]) -> None:
        #: brokers by the ports of their internal listeners
        self._owners = owners
        self._cut: frozenset[Link] = frozenset()

    def between(self, node: int, port: object) -> Link | None:
        """The link from `node` to the broker that listens on `port`; None if no broker listens there."""
        owner = self._owners.get(port) if isinstance(port, int) else None
        return None if owner is None else frozenset({node, owner})

    def is_cut(self, link: Link) -> bool:
        return link in self._cut

    def cut(self, *links: Link) -> None:
        self._cut |= {*links}

    def heal(self) -> None:
        self._cut = frozenset()


class Gate(asyncio.BufferedProtocol, asyncio.Transport):
    """A connection to another broker, through which nothing goes while `is_cut()`.

    To the socket it is the protocol, to the protocol behind it the transport. Owned by the loop's thread.
    """

    def __init__(
        self, inner: asyncio.BufferedProtocol, is_cut: Callable[[], bool], gates: dict[Gate, None]
    ) -> None:
        super().__init__()
        self._inner = inner
        self._is_cut = is_cut
        #: all that are open
        self._gates = gates
        self._socket: asyncio.Transport
        self._held: list[Buffer] = []
        self._given_up = False

    def update(self) -> None:
        """Apply the new state of the link."""
        if self._socket.is_closing():
            return
        if self._is_cut():
            self._socket.pause_reading()
        elif self._given_up:
            self._socket.abort()
        else:
            held, self._held = self._held, []
            self._socket.writelines(held)
            self._socket.resume_reading()

    def drop(self) -> None:
        """Close the socket in any state of the link: the process ends."""
        self._socket.abort()

    # -- called by the protocol

    def write(self, data: Any) -> None:
        self.writelines([data])

    def writelines(self, list_of_data: Any) -> None:
        if self._is_cut() or self._held:
            self._held += map(bytes, list_of_data)
        else:
            self._socket.writelines(list_of_data)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self._is_cut():
            self._socket.abort()
        elif not self._given_up:
            # The other side hears of it when the link heals.
            self._given_up = True
            asyncio.get_running_loop().call_soon(self._inner.connection_lost, None)

    def is_closing(self) -> bool:
        return self._given_up or self._socket.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._socket.get_extra_info(name, default)

    # -- called by the socket's transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast(asyncio.Transport, transport)
        self._gates[self] = None
        self._inner.connection_made(self)
        if self._is_cut():
            # Deferred, because asyncio starts to read after connection_made, even if reading is paused.
            asyncio.get_running_loop().call_soon(self.update)

    def get_buffer(self, sizehint: int) -> Any:
        return self._inner.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._inner.buffer_updated(nbytes)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        del self._gates[self]
        if not self._given_up:
            self._inner.connection_lost(exc)


def stop_listening(server: asyncio.AbstractServer) -> None:
    """Close a server of asyncio's own loop once the connections that it has just accepted have transports.

    A server that is closed earlier never closes their sockets.
    """
    assert isinstance(server, asyncio.Server)
    loop = server.get_loop()
    for listening in server.sockets:
        loop.remove_reader(listening)
    loop.call_soon(server.close)
