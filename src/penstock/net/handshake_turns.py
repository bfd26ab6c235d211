"""Spreads the steps of TLS handshakes over the iterations of the event loop.

A step computes signatures and holds the loop for about a millisecond. Without turns, a storm of new
connections would hold it for as many milliseconds as there are connections with data. With turns, at most one
step runs between two polls of the sockets, so the requests of other connections are served in between. Client
addresses take turns, so one address cannot delay the handshakes of the others.

Owned by: the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["HandshakeTurns"]


class _Shaking(Protocol):
    """A connection whose TLS handshake is in progress."""

    def advance_handshake(self) -> None:
        """Process the received bytes."""
        ...


class _Loop(Protocol):
    """The part of an event loop that is used."""

    def call_soon(self, callback: Callable[[], object]) -> Any: ...


class HandshakeTurns:
    """The handshakes of a broker that wait for their next step.

    Invariant: a connection waits at most once.
    """

    __slots__ = ("_is_scheduled", "_loop", "_waiting")

    def __init__(self, loop: _Loop) -> None:
        self._loop = loop
        #: connections in the order of their arrival, by address; the first address is the next one
        self._waiting: dict[str, dict[_Shaking, None]] = {}
        #: whether a step has run since the last poll of the sockets
        self._is_scheduled = False

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def take(self, connection: _Shaking, address: str) -> bool:
        """Run the next step of a handshake, now or in a later iteration; false if it is to run later."""
        if self._is_scheduled:
            self._waiting.setdefault(address, {})[connection] = None
            return False
        self._schedule()
        connection.advance_handshake()
        return True

    def discard(self, connection: _Shaking, address: str) -> None:
        """The connection has ended."""
        waiting = self._waiting.get(address)
        if waiting is not None:
            waiting.pop(connection, None)
            if not waiting:
                del self._waiting[address]

    def _schedule(self) -> None:
        self._is_scheduled = True
        self._loop.call_soon(self._next)

    def _next(self) -> None:
        self._is_scheduled = False
        if not self._waiting:
            return
        address, waiting = next(iter(self._waiting.items()))
        connection = next(iter(waiting))
        del waiting[connection], self._waiting[address]
        if waiting:
            self._waiting[address] = waiting
        self._schedule()
        connection.advance_handshake()
