"""Responses that clients do not read: their bytes, for each client over all of its connections.

A connection whose peer does not read is not read either, so it has one large response in memory. A client may
have many connections. While the unsent bytes of a client exceed a limit, its large requests and responses get
no turn (`Turns.suspend`). They go on when it has read some of its responses, or has closed its connections.

A peer that has less than `HIGH_WATER` unsent counts as one that reads. That is little for a few connections,
and a gigabyte for a thousand of them. So the limit of each is lower if an address, or all of them, have many:
all connections together stay within the memory for requests, beside one response each. They are set anew when
a number of connections exceeds a power of two, which costs each new connection little, and requests nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Final, Protocol

from penstock.net.output import HIGH_WATER, Output
from penstock.net.turns import Client, Turns

__all__ = ["LEAST_HIGH_WATER", "UnsentResponses"]

#: the kernel holds about as much for each connection
LEAST_HIGH_WATER: Final = 32 << 10


class _Peer(Client, Protocol):
    """A connection of a client."""

    @property
    def address(self) -> str: ...


class UnsentResponses:
    """The unsent bytes of the connections of a server. Owned by the event loop's thread."""

    __slots__ = ("_by_connection", "_by_owner", "_limit", "_limit_of_all", "_opened", "_outputs", "_turns")

    def __init__(self, turns: Turns, limit: int, limit_of_all: int | None = None) -> None:
        """`limit` is that of one owner, a principal at an address, and of all its connections that read."""
        self._turns = turns
        self._limit = limit
        self._limit_of_all = limit if limit_of_all is None else limit_of_all
        #: connections with unsent bytes, with the owner at that time
        self._by_connection: dict[Client, tuple[Hashable, int]] = {}
        self._by_owner: dict[Hashable, int] = {}
        #: all connections, and their numbers by address
        self._outputs: dict[_Peer, Output] = {}
        self._opened: Counter[str] = Counter()

    def opened(self, connection: _Peer, output: Output) -> None:
        """A connection was made: it, and those before it, may have their part of the limits unsent."""
        self._outputs[connection] = output
        self._opened[connection.address] += 1
        of_address = self._opened[connection.address]
        if _is_new_power(len(self._outputs), self._limit_of_all):
            for each, its_output in self._outputs.items():
                its_output.limit(self._high_water(self._opened[each.address]))
        elif _is_new_power(of_address, self._limit):
            high_water = self._high_water(of_address)
            for each, its_output in self._outputs.items():
                if each.address == connection.address:
                    its_output.limit(high_water)
        elif (high_water := self._high_water(of_address)) < HIGH_WATER:
            output.limit(high_water)

    def _high_water(self, of_address: int) -> int:
        share = min(_share(self._limit, of_address), _share(self._limit_of_all, len(self._outputs)))
        return max(LEAST_HIGH_WATER, min(HIGH_WATER, share))

    def changed(self, connection: Client, size: int) -> None:
        """A connection has `size` unsent bytes that its peer does not read; 0 if it reads."""
        before = self._by_connection.pop(connection, None)
        if before is not None:
            self._add(before[0], -before[1])
        if size:
            self._by_connection[connection] = connection.owner, size
            self._add(connection.owner, size)

    def forget(self, connection: _Peer) -> None:
        """A connection is closed: its bytes do not count, and its large requests do not wait."""
        self.changed(connection, 0)
        self._turns.forget(connection)
        if self._outputs.pop(connection, None) is not None:
            self._opened[connection.address] -= 1
            if not self._opened[connection.address]:
                del self._opened[connection.address]

    def _add(self, owner: Hashable, size: int) -> None:
        was = self._by_owner.get(owner, 0)
        now = self._by_owner[owner] = was + size
        if not now:
            del self._by_owner[owner]
        if was <= self._limit < now:
            self._turns.suspend(owner)
        elif now <= self._limit < was:
            self._turns.resume(owner)


def _share(limit: int, connections: int) -> int:
    """The part of a limit for each of some connections, the same until their number has doubled."""
    return limit >> (connections - 1).bit_length()


def _is_new_power(connections: int, limit: int) -> bool:
    """Whether one more connection has changed the share of each, and it matters."""
    if connections < 2 or (connections - 1) & (connections - 2):
        return False
    return _share(limit, connections) < HIGH_WATER and _share(limit, connections - 1) > LEAST_HIGH_WATER
