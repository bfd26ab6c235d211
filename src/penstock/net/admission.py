"""Admission of new connections: limits of open connections (KIP-402) and rates of new ones (KIP-612).

A connection that finds no free slot, or that comes too early for the rate of the broker or of its listener,
waits in the queue of its listener. The broker has accepted it, but does not read from it. A Kafka broker
leaves such connections in the backlog of the socket; the client sees the same. The queue is as long as the
backlog. Connections beyond it are refused.

Owned by: the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Protocol

from penstock.net.connection import Connection
from penstock.net.limits import Limits
from penstock.quotas.connections import ConnectionRates

__all__ = ["Admission"]


class _Host(Protocol):
    """The server whose connections are admitted."""

    loop: asyncio.AbstractEventLoop

    @property
    def limits(self) -> Limits: ...


class Admission:
    """Decides when a connection is served."""

    def __init__(self, host: _Host, rates: ConnectionRates) -> None:
        self._host = host
        self._rates = rates
        #: connections that are served, by listener
        self._served: Counter[str] = Counter()
        self._queues: dict[str, deque[Connection]] = {}
        #: listeners whose first waiting connection is counted in the rates
        self._counted: set[str] = set()
        #: timers of listeners whose first waiting connection waits for the rates
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def served(self) -> int:
        return self._served.total()

    @property
    def waiting(self) -> int:
        return sum(map(len, self._queues.values()))

    def arrive(self, connection: Connection) -> bool:
        """Serve a new connection, now or later; False if the queue of its listener is full."""
        name = connection.listener.name
        queue = self._queues.setdefault(name, deque())
        if len(queue) >= self._host.limits.backlog:
            return False
        queue.append(connection)
        self._advance(name)
        if not connection.is_admitted:
            connection.hold()
        return True

    def leave(self, connection: Connection) -> None:
        """A connection has ended."""
        name = connection.listener.name
        if connection.is_admitted:
            connection.is_admitted = False
            self._served[name] -= 1
        elif name in self._queues and connection in self._queues[name]:
            if self._queues[name][0] is connection:
                self._end_turn(name)
            self._queues[name].remove(connection)
        self.review()

    def review(self) -> None:
        """A slot is free, or the limits have changed."""
        for name in list(self._queues):
            self._advance(name)

    def refusal_s(self, connection: Connection) -> float:
        """0, or the delay after which a connection is refused for the rate of its address."""
        return self._rates.refusal_ms(connection.address, self._now_ms()) / 1000

    def _advance(self, name: str) -> None:
        """Admit connections from the head of a queue, as far as slots and rates allow."""
        queue = self._queues[name]
        while queue and name not in self._timers:
            if name not in self._counted:
                self._counted.add(name)
                wait_ms = self._rates.wait_ms(self._host.limits.rates, name, self._now_ms())
                if wait_ms:
                    self._timers[name] = self._host.loop.call_later(wait_ms / 1000, self._time_passed, name)
                    return
            if not self._has_slot(name):
                return
            self._end_turn(name)
            connection = queue.popleft()
            connection.is_admitted = True
            self._served[name] += 1
            if connection.is_held:
                connection.release()
        if not queue:
            del self._queues[name]

    def _time_passed(self, name: str) -> None:
        del self._timers[name]
        self._advance(name)

    def _end_turn(self, name: str) -> None:
        """The first connection of a queue is admitted or gone."""
        self._counted.discard(name)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()

    def _has_slot(self, name: str) -> bool:
        limits = self._host.limits
        of_listener = limits.max_connections_by_listener.get(name)
        if of_listener is not None and self._served[name] >= of_listener:
            return False
        return self.served < limits.max_connections

    def _now_ms(self) -> int:
        return int(self._host.loop.time() * 1000)
