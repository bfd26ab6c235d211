"""Listeners and the limits that all connections of a broker share."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.model.errors import ProtocolError
from penstock.model.ticks import until_tick
from penstock.net.admission import Admission
from penstock.net.application import Application
from penstock.net.buffers import BufferPool
from penstock.net.connection import Connection
from penstock.net.limits import Limits
from penstock.net.listener import Listener
from penstock.net.response_queue import Answer
from penstock.net.turns import Turns
from penstock.net.unauthenticated import Unauthenticated
from penstock.net.unsent import UnsentResponses
from penstock.observability.limited_log import LimitedLog
from penstock.quotas.connections import ConnectionRates
from penstock.quotas.failures import FailedLogins
from penstock.quotas.rates import DEFAULT_WINDOWS, Windows

__all__ = ["Server"]

#: reasons of failed handshakes that are counted one by one
_REASONS_MAX: Final = 50


@dataclass(slots=True)
class ConnectionCounts:
    """Counters of connections, for the metrics."""

    accepted: int = 0
    refused: int = 0
    rejected: int = 0
    expired: int = 0
    open_by_ip: Counter[str] = field(default_factory=Counter)
    #: by listener: connections that were accepted, and the bytes of those that have ended
    opened: Counter[str] = field(default_factory=Counter)
    bytes_in: Counter[str] = field(default_factory=Counter)
    bytes_out: Counter[str] = field(default_factory=Counter)
    #: failed TLS handshakes by reason
    handshake_failures: Counter[str] = field(default_factory=Counter)
    #: by listener and reason
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)

    def refuse(self, listener: str, reason: str) -> None:
        self.refused += 1
        self.refusals[listener, reason] += 1


class _NotServing:
    """The application of a server that does not accept connections yet."""

    def serve(self, connection: Connection, frame: memoryview) -> Answer:
        raise ProtocolError("the server has not started")

    def connection_lost(self, connection: Connection) -> None:
        raise AssertionError("a server without an application has no connections")


class Server:
    """Accepts connections on several listeners and holds them to the limits.

    `bind` takes the addresses, `serve` accepts connections for an application. Between the two a broker opens
    its data directories, so that an address in use leaves them untouched.
    """

    def __init__(
        self,
        limits: Limits,
        log: Callable[..., Any],
        *,
        idle_check_s: float = 5.0,
        has_room: Callable[[int], bool] = lambda descriptor: True,
        windows: Windows = DEFAULT_WINDOWS,
        failed_logins: FailedLogins | None = None,
        turns: Turns | None = None,
    ) -> None:
        """`log` takes events of connections, at most 60 of each per minute.

        `has_room` returns whether a new connection may keep its descriptor, and logs refusals.

        `windows` are those of the rates of new connections. `failed_logins` limits failed authentications.

        `turns` are those of the large requests; servers of one broker share them.
        """
        self.application: Application[Connection] = _NotServing()
        self._limits = limits
        self.max_request_bytes = limits.max_request_bytes
        self.pool = BufferPool(limits.memory_bytes, limits.memory_bytes_per_ip)
        self.counts = ConnectionCounts()
        #: in the order in which they came, so that a simulated end of all of them is the same every time
        self.connections: dict[Connection, None] = {}
        self.loop = asyncio.get_running_loop()
        #: the connection that serves what arrived together, and what is to happen before it is answered
        self.serving: Connection | None = None
        self.due: list[Callable[[], None]] = []
        self.turns = Turns() if turns is None else turns
        self.unsent = UnsentResponses(self.turns, self.pool.address_limit, self.pool.limit)
        self.unauthenticated = Unauthenticated(self.loop, lambda: self._limits, self.pool.scratch)
        self.rates = ConnectionRates(windows)
        self._admission = Admission(self, self.rates)
        self._failed_logins = failed_logins
        self._log = LimitedLog(log, lambda: self.loop.time())
        self._has_room = has_room
        self._idle_check_s = idle_check_s
        self._emptied = asyncio.Event()
        self._stopping = False
        self._servers: list[asyncio.Server] = []
        self._sweep: asyncio.TimerHandle | None = None

    @property
    def limits(self) -> Limits:
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = limits
        self._admission.review()

    async def bind(self, listeners: Sequence[Listener], shared_port: int = 0) -> None:
        """Take every listener's address; a port of 0 is replaced by the one that the system chose.

        The first listener also accepts connections on `shared_port`, if that is not 0. Several processes can
        bind it, and each connection reaches one of them.
        """
        for listener in listeners:
            server = await self._bound(listener, listener.port)
            listener.port = listener.port or server.sockets[0].getsockname()[1]
            listener.advertised_port = listener.advertised_port or listener.port
            listener.advertised_host = listener.advertised_host or socket.gethostname()
        if shared_port and listeners:
            await self._bound(listeners[0], shared_port, shared=True)

    async def _bound(self, listener: Listener, port: int, *, shared: bool = False) -> asyncio.Server:
        server = await self.loop.create_server(
            lambda: self._protocol(listener),
            listener.host or None,
            port,
            backlog=self.limits.backlog,
            reuse_address=True,
            reuse_port=shared or None,
            start_serving=False,
        )
        self._servers.append(server)
        for bound in server.sockets:
            self._set_options(bound)
        return server

    def _protocol(self, listener: Listener) -> asyncio.BufferedProtocol:
        connection = Connection(self, listener)
        return connection if listener.security is None else listener.security.wrap(connection)

    def _set_options(self, bound: socket.socket) -> None:
        """Set the options that accepted sockets inherit; a receive buffer counts only if set before `listen`.

        Keep-alive finds peers that are gone without a word, as after a power failure.
        """
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self.limits.send_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.limits.send_buffer_bytes)
        if self.limits.receive_buffer_bytes > 0:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.receive_buffer_bytes)

    async def serve(self, application: Application[Connection]) -> None:
        """Accept connections from now on."""
        self.application = application
        for server in self._servers:
            await server.start_serving()
        self._schedule_sweep()

    async def stop(self) -> None:
        """Stop accepting, then close every connection."""
        self._stopping = True
        if self._sweep is not None:
            self._sweep.cancel()
        self.unauthenticated.stop()
        self.release()
        self._emptied.clear()
        for connection in list(self.connections):
            connection.close()
        if self.connections:
            # Responses that were written have this long to be sent.
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.abort()
        if self.connections:
            await self._emptied.wait()

    def release(self) -> None:
        """Give up the addresses."""
        for server in self._servers:
            server.close()

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call once all frames are served that arrived together, before they are answered; if none, soon."""
        if self.serving is not None:
            self.due.append(callback)
        else:
            self.loop.call_soon(callback)

    def run_due(self) -> None:
        due = self.due
        while due:
            callback = due.pop(0)
            try:
                callback()
            except Exception as e:  # noqa: BLE001 - as the loop does: the next responses do not depend on it
                self.loop.call_exception_handler({"message": f"failed: {callback!r}", "exception": e})

    def admit(self, connection: Connection) -> None:
        """Take in a new connection, or refuse it where a limit is reached."""
        address = connection.address
        limits = self.limits
        self.connections[connection] = None
        self.counts.open_by_ip[address] += 1
        if self._stopping:
            # The system had taken it before the listener was closed.
            connection.abort()
            return
        most = limits.max_connections_by_ip.get(address, limits.max_connections_per_ip)
        if self.counts.open_by_ip[address] > most:
            self._refuse(connection, "max.connections.per.ip")
        elif self.has_failed_often(connection):
            self._refuse(connection, "penstock.authentication.failures.per.ip.max")
        elif not self._has_room(connection.descriptor):
            self.counts.refuse(connection.listener.name, "descriptors")
            connection.abort()
        elif delay_s := self._admission.refusal_s(connection):
            # Like Kafka: the delay slows down a client that connects again and again.
            connection.hold()
            self.loop.call_later(delay_s, connection.abort)
            self.counts.refuse(connection.listener.name, "connection_creation_rate")
        elif self._admission.arrive(connection):
            self.counts.accepted += 1
            self.counts.opened[connection.listener.name] += 1
        else:
            self._refuse(connection, "max.connections")

    def has_failed_often(self, connection: Connection) -> bool:
        """Whether a client has failed too often: its address, or the browser behind a console."""
        logins = self._failed_logins
        if logins is None or connection.listener.security is None:
            return False
        return logins.refuses(_counted(connection), int(self.loop.time() * 1000))

    def authentication_failed(self, connection: Connection) -> None:
        """Count a failed authentication of an address."""
        if self._failed_logins is not None:
            self._failed_logins.failed(_counted(connection), int(self.loop.time() * 1000))

    def _refuse(self, connection: Connection, limit: str) -> None:
        self.counts.refuse(connection.listener.name, limit)
        self._log("connection_refused", peer=connection.peer, limit=limit)
        connection.abort()

    def forget(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        listener = connection.listener.name
        self.counts.bytes_in[listener] += connection.received
        self.counts.bytes_out[listener] += connection.sent
        address = connection.address
        self.counts.open_by_ip[address] -= 1
        if not self.counts.open_by_ip[address]:
            del self.counts.open_by_ip[address]
        self.unauthenticated.discard(connection)
        connection.application.connection_lost(connection)
        self._admission.leave(connection)
        if not self.connections:
            self._emptied.set()

    def handshake_failed(self, reason: str) -> None:
        failures = self.counts.handshake_failures
        # OpenSSL has a few hundred reasons; a peer chooses among them.
        failures[reason if reason in failures or len(failures) < _REASONS_MAX else "other"] += 1

    def rejected(self, connection: Connection, reason: str) -> None:
        """A peer's bytes made no sense; its connection is being closed."""
        self.counts.rejected += 1
        self._log(
            "connection_rejected", peer=connection.peer, listener=connection.listener.name, reason=reason
        )

    def _schedule_sweep(self) -> None:
        delay_s = until_tick(self.loop.time(), self._idle_check_s)
        self._sweep = self.loop.call_later(delay_s, self._close_idle)

    def _close_idle(self) -> None:
        limits, now = self.limits, self.loop.time()
        oldest = now - limits.max_idle_s
        for connection in list(self.connections):
            if connection.is_trickling(now, limits.frame_timeout_s, limits.frame_bytes_per_s_min):
                connection.fail("a request has been incomplete for too long")
            elif connection.idle_since() < oldest:
                self.counts.expired += 1
                # One that is closing already does not get rid of what we wrote.
                (connection.abort if connection.closed else connection.close)()
        self.unauthenticated.close_overdue()
        self._close_excess()
        self._schedule_sweep()

    def _close_excess(self) -> None:
        """Close the connections that were idle longest if the limit was lowered, as Kafka does."""
        excess = self._admission.served - self.limits.max_connections
        if excess > 0:
            served = [connection for connection in self.connections if connection.is_admitted]
            for connection in sorted(served, key=Connection.idle_since)[:excess]:
                self._log("connection_closed", peer=connection.peer, limit="max.connections")
                connection.close()


def _counted(connection: Connection) -> str:
    """The address that failed logins of a connection count for."""
    return connection.session.visitor or connection.address
