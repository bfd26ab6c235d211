"""The HTTP side of the monitoring port: connections, limits and timeouts.

A connection serves one request at a time. Bounds: the number of connections, the size of a request, the time
for it to arrive, and the time for its response to leave. At the limit of connections, the one that has been
idle for longest is closed for a new one. So neither a scraper that never reads nor many of them harm the
broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, cast

from penstock.broker.base.logs import get_logger
from penstock.broker.monitoring.documents import Document
from penstock.observability.http import (
    HEAD_MAX,
    BadRequest,
    Request,
    head_end,
    may_read,
    parse_head,
    response_head,
)
from penstock.observability.limited_log import LimitedLog
from penstock.security.hosts import is_local_host

__all__ = ["HttpServer", "Policy"]

log = get_logger("monitoring")
#: how long a request may take to arrive, and an idle connection to send its next one
_REQUEST_S: Final = 10.0
_IDLE_S: Final = 90.0
#: how long a response may take to leave
_RESPONSE_S: Final = 10.0
#: unsent bytes at which writing pauses
_HIGH_WATER: Final = 256 << 10
#: paths that need no token: orchestrators have none
_OPEN_PATHS: Final = frozenset({"/healthz", "/readyz", "/readyz/in-sync"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits on clients. `token` is None if every client may read."""

    connections_max: int
    token: str | None
    #: whether only loopback is bound, so that another name in a Host header is an attack on a browser
    local_only: bool


class HttpServer:
    """Serves documents. `wrap` puts TLS between the socket and a connection."""

    def __init__(
        self,
        get: Callable[[Request], Awaitable[Document]],
        policy: Policy,
        wrap: Callable[[Any], asyncio.BufferedProtocol] | None = None,
    ) -> None:
        self._get = get
        self.policy = policy
        self._wrap = wrap
        #: in the order of their last requests
        self.connections: dict[HttpConnection, None] = {}
        self._server: asyncio.Server | None = None
        #: logs events that any client can cause
        self.report = LimitedLog(
            lambda event, **fields: log.info(event, **fields), lambda: asyncio.get_running_loop().time()
        )

    async def start(self, host: str, port: int) -> int:
        """Bind and serve; returns the port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol, host or None, port, reuse_address=True)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.abort()
        await asyncio.sleep(0)

    def _protocol(self) -> asyncio.BufferedProtocol:
        connection = HttpConnection(self, self._get)
        return connection if self._wrap is None else self._wrap(connection)

    def admit(self, connection: HttpConnection) -> bool:
        """Take in a new connection; false if all connections are busy."""
        if len(self.connections) >= self.policy.connections_max:
            idle = next((each for each in self.connections if not each.busy), None)
            if idle is None:
                return False
            idle.abort()
            self.connections.pop(idle, None)
        self.connections[connection] = None
        return True

    def used(self, connection: HttpConnection) -> None:
        """Move a connection to the end of those that may be closed for another."""
        if connection in self.connections:
            del self.connections[connection]
            self.connections[connection] = None


class HttpConnection(asyncio.BufferedProtocol):
    """One connection of a scraper."""

    def __init__(self, server: HttpServer, get: Callable[[Request], Awaitable[Document]]) -> None:
        self._server = server
        self._get = get
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._buffer = bytearray(HEAD_MAX + 1)
        self._filled = 0
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._may_write = asyncio.Event()
        self._may_write.set()

    @property
    def busy(self) -> bool:
        return self._task is not None

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        if self._server.admit(self):
            self._expect(_REQUEST_S)
        else:
            self._transport.abort()

    def secured(self, channel: Any) -> None:
        """The TLS handshake is done."""

    def handshake_failed(self, reason: str) -> None:
        self._server.report("monitoring_handshake_failed", reason=reason)
        self.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._task is None:
            self._take()
        elif self._filled > HEAD_MAX:
            # Requests that pile up while one is served: no scraper does that.
            self.abort()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._may_write.clear()

    def resume_writing(self) -> None:
        self._may_write.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.connections.pop(self, None)
        self._cancel_timer()
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # -- requests

    def _take(self) -> None:
        """Serve the request in the buffer, if it is complete."""
        try:
            end = head_end(self._buffer[: self._filled])
            if not end:
                return
            request = parse_head(bytes(self._buffer[:end]))
        except BadRequest as e:
            self._refuse(e)
            return
        rest = self._buffer[end : self._filled]
        self._buffer[: len(rest)] = rest
        self._filled = len(rest)
        self._cancel_timer()
        self._server.used(self)
        self._task = self._loop.create_task(self._serve(request))
        self._task.add_done_callback(self._served)

    async def _serve(self, request: Request) -> None:
        try:
            async with asyncio.timeout(_RESPONSE_S):
                self._check(request)
                document = await self._get(request)
                await self._write(request, document)
        except BadRequest as e:
            self._refuse(e)
        except TimeoutError:
            log.warning("scrape_timed_out", path=request.path, seconds=_RESPONSE_S)
            self.abort()

    def _check(self, request: Request) -> None:
        policy = self._server.policy
        if policy.local_only and not is_local_host(request.headers.get("host", "")):
            raise BadRequest(HTTPStatus.MISDIRECTED_REQUEST, "the Host header does not name this machine")
        if request.path not in _OPEN_PATHS and not may_read(request, policy.token):
            raise BadRequest(HTTPStatus.UNAUTHORIZED, "a bearer token is needed: penstock.metrics.token")

    async def _write(self, request: Request, document: Document) -> None:
        length = sum(map(len, document.chunks))
        head = response_head(document.status, document.content_type, length, keeps_alive=request.keeps_alive)
        for chunk in [head, *([] if request.method == "HEAD" else document.chunks)]:
            if self._transport is None:
                return
            self._transport.write(chunk)
            await self._may_write.wait()
        if not request.keeps_alive and self._transport is not None:
            self._transport.close()

    def _refuse(self, error: BadRequest) -> None:
        if self._transport is not None:
            body = f"{error}\n".encode()
            extra = "WWW-Authenticate: Bearer\r\n" if error.status is HTTPStatus.UNAUTHORIZED else ""
            head = response_head(error.status, "text/plain", len(body), keeps_alive=False, extra=extra)
            self._transport.write(head + body)
            self._transport.close()

    def _served(self, task: asyncio.Task[None]) -> None:
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("scrape_failed", error=repr(error), exc_info=error)
            self.abort()
        if self._transport is not None and not self._transport.is_closing():
            self._expect(_IDLE_S)
            if self._filled:
                self._take()

    def _expect(self, seconds: float) -> None:
        """Close the connection unless a request arrives in time."""
        self._cancel_timer()
        self._timer = self._loop.call_later(seconds, self.abort)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
