"""Connections that have not authenticated: bounded in number, time and memory.

A new connection beyond the limit of its listener or its address closes the oldest one there. So connections
that are only held open do not keep out those that authenticate at once. Incomplete frames have receive
buffers of their own, so they cannot use up those of authenticated clients.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from penstock.net.buffers import BufferPool
from penstock.net.limits import Limits
from penstock.net.listener import Listener

__all__ = ["Unauthenticated"]

#: receive buffers of all such connections, and of those of one address
_MEMORY_BYTES: Final = 16 << 20
_MEMORY_BYTES_PER_IP: Final = 4 << 20
#: how often deadlines are checked while there are such connections
_CHECK_S: Final = 1.0
_TOO_MANY: Final = "too many connections of its {} have not authenticated"


class _Pending(Protocol):
    """A connection that has not authenticated."""

    address: str
    listener: Listener
    pending_since: float | None

    @property
    def is_held(self) -> bool: ...

    def fail(self, reason: str) -> None: ...


class Unauthenticated:
    """The connections of a server that have not authenticated yet."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: Callable[[], Limits], scratch: memoryview
    ) -> None:
        """`scratch` is the buffer for first reads, which all connections share."""
        self._loop = loop
        self._limits = limits
        self.pool = BufferPool(_MEMORY_BYTES, _MEMORY_BYTES_PER_IP, scratch=scratch)
        #: each in the order in which they came
        self._by_listener: dict[str, dict[_Pending, None]] = {}
        self._by_address: dict[tuple[str, str], dict[_Pending, None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return sum(map(len, self._by_listener.values()))

    def add(self, connection: _Pending) -> None:
        """Count a new connection; closes the oldest one if it is one too many."""
        limits, name = self._limits(), connection.listener.name
        of_listener = self._by_listener.setdefault(name, {})
        of_address = self._by_address.setdefault((name, connection.address), {})
        of_listener[connection] = of_address[connection] = None
        if len(of_address) > limits.max_unauthenticated_per_ip:
            self._close(next(iter(of_address)), _TOO_MANY.format("address"))
        elif len(of_listener) > limits.max_unauthenticated:
            self._close(next(iter(of_listener)), _TOO_MANY.format("listener"))
        if self._timer is None:
            self._timer = self._loop.call_later(_CHECK_S, self._check)

    def _close(self, connection: _Pending, reason: str) -> None:
        # Not counted from now on, however long its peer takes to close it.
        self.discard(connection)
        connection.fail(reason)

    def discard(self, connection: _Pending) -> None:
        """A connection has authenticated or ended."""
        name = connection.listener.name
        self._by_listener.get(name, {}).pop(connection, None)
        of_address = self._by_address.get((name, connection.address))
        if of_address is not None:
            of_address.pop(connection, None)
            if not of_address:
                del self._by_address[name, connection.address]

    def close_overdue(self) -> None:
        """Close the connections whose handshake and authentication take too long."""
        oldest = self._loop.time() - self._limits().authentication_timeout_s
        for connections in self._by_listener.values():
            for connection in list(connections):
                since = connection.pending_since
                if since is not None and since < oldest and not connection.is_held:
                    connection.fail("not authenticated in time")

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        self._timer = None
        self.close_overdue()
        if len(self):
            self._timer = self._loop.call_later(_CHECK_S, self._check)
