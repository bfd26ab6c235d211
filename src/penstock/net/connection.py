"""One client connection: frames in, answers out in the order of their requests (`response_queue`).

Requests are pipelined: a frame is served as soon as it is whole, even while earlier answers are still to
come; answers queue behind them. A frame's bytes belong to the receive buffer and are valid only inside the
call that serves it.

Back pressure: reading stops while too many responses are pending, while the peer does not read its responses,
or while the buffer pool is exhausted. Invalid bytes of a peer close its own connection and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Any, Final, cast

from penstock.model.errors import ProtocolError
from penstock.net.application import Application, ConnectionHost
from penstock.net.listener import Listener
from penstock.net.muting import Muting
from penstock.net.output import Output
from penstock.net.partial_frame import PartialFrame
from penstock.net.peer_names import peer_of
from penstock.net.response_queue import ResponseQueue
from penstock.security.principal import Session

__all__ = ["Connection"]

_unpack_length: Final = Struct(">i").unpack_from
_CHECKED_BYTES: Final = 2 << 10  # of pipelined requests, between two looks at the clock; the first is at once


class Connection(asyncio.BufferedProtocol):
    """The receiving half of a connection. `ResponseQueue` and `Output` are the sending half.

    Why it has more than 25 methods: asyncio calls nine of them, and both halves may pause reading.
    """

    __slots__ = (
        "_muting",
        "_output",
        "_partial",
        "_partial_pool",
        "_paused",
        "_pool",
        "_responses",
        "_server",
        "_transport",
        "_waiting_for_buffer",
        "_write_blocked",
        "active_at",
        "address",
        "application",
        "closed",
        "is_admitted",
        "listener",
        "max_frame_bytes",
        "memo",
        "peer",
        "pending_since",
        "received",
        "session",
        "software",
    )

    def __init__(self, server: ConnectionHost[Connection], listener: Listener) -> None:
        self._server = server
        self.listener = listener
        #: the peer's host and port, and its host alone
        self.peer = self.address = ""
        #: the principal and its address; replaced when the peer authenticates
        self.session = Session(listener=listener.name)
        #: (name, version) that the client said of itself in ApiVersions
        self.software: tuple[str, str] | None = None
        #: the requests that the peer repeats; set by the application, None if there are none
        self.memo: Any = None
        self.closed = False
        #: whether the connection is within the limits of connections, and is served
        self.is_admitted = False
        #: bytes that the peer has sent
        self.received = 0
        self.active_at = 0.0
        #: a gate until the peer is authenticated, then the server's application
        self.application: Application[Connection] = server.application
        #: the largest frame, which is small until the peer is authenticated
        self.max_frame_bytes = server.max_request_bytes
        #: when a connection was made that is not authenticated yet; None for any other
        self.pending_since: float | None = None
        #: the receive buffers: a small pool until the peer is authenticated
        self._pool = server.pool
        #: the bytes that arrived and are not served; None if there are none
        self._partial: PartialFrame | None = None
        self._partial_pool = server.pool
        self._paused = self._write_blocked = self._waiting_for_buffer = False
        self._muting = Muting(server.loop, self._unmuted, self._update_reading)

    # -- asyncio's side -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.address, self.peer = peer_of(transport)
        self.session = Session(listener=self.listener.name, host=self.address)
        self.active_at = self._server.loop.time()
        self._output = Output(self._server.loop, self._transport, self._output_changed)
        self._server.unsent.opened(self, self._output)
        self._responses = ResponseQueue(self, self._server, self._output, self._update_reading)
        self.application = self._server.application
        if self.listener.security is not None:
            self.pending_since = self.active_at
            self.application = self.listener.security.gate(self, self.application)
            self._pool = self._server.unauthenticated.pool
            self._server.unauthenticated.add(self)
        self._server.admit(self)

    @property
    def descriptor(self) -> int:
        """The number of the socket's descriptor, -1 where it has none."""
        found = self._transport.get_extra_info("socket")
        return -1 if found is None else found.fileno()

    @property
    def sent(self) -> int:
        """Bytes that were handed over to be sent."""
        return self._output.sent

    @property
    def buffered(self) -> int:
        """Bytes of the buffer that holds an incomplete request."""
        return 0 if self._partial is None else len(self._partial.buffer)

    def pending_requests(self) -> Iterator[object]:
        """The requests that wait for their responses (`Deferred.request`)."""
        return self._responses.pending_requests()

    def idle_since(self) -> float:
        """When the peer last sent something, or took something of what it was owed.

        A muted connection is not idle.
        """
        return max(self.active_at, self._output.active_at, self._muting.until)

    def is_trickling(self, now: float, timeout_s: float, bytes_per_s: int) -> bool:
        """Whether the peer sends an incomplete frame more slowly than it may, after `timeout_s` of grace."""
        partial = self._partial
        return partial is not None and not self._paused and partial.is_slow(now, timeout_s, bytes_per_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._muting.close()
        self._output.close()
        self._server.unsent.forget(self)
        self._release_buffer()
        self._responses.cancel()
        self._server.forget(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._partial is None:
            return self._pool.first_read
        return self._partial.view[self._partial.filled : self._partial.stop]

    def buffer_updated(self, nbytes: int) -> None:
        self.active_at = self._server.loop.time()
        self.received += nbytes
        if self._partial is None:
            self._advance(self._pool.scratch[:nbytes])
        else:
            partial = self._partial
            partial.filled += nbytes
            if partial.filled >= partial.need:
                self._advance(partial.view[: partial.filled])

    def pause_writing(self) -> None:
        self._output.pause()

    def resume_writing(self) -> None:
        self._output.resume()

    # -- security -------------------------------------------------------------------------------------

    def secured(self, channel: Any) -> None:
        """The TLS handshake is done."""
        assert self.listener.security is not None
        self.listener.security.secured(self, channel)

    def handshake_failed(self, reason: str) -> None:
        self._server.handshake_failed(reason)
        if self.listener.security is not None and self.pending_since is not None and not self.closed:
            self.listener.security.failed(self, reason)
        self.fail(reason)

    def count_failed_authentication(self) -> None:
        self._server.authentication_failed(self)

    def has_failed_often(self) -> bool:
        """Whether the client has failed to authenticate too often, here and on other connections."""
        return self._server.has_failed_often(self)

    def authenticated(self, application: Application[Connection]) -> None:
        """The peer is authenticated: `application` serves its frames from now on."""
        self.pending_since = None
        self._server.unauthenticated.discard(self)
        self._pool = self._server.pool
        self.application = application
        self.max_frame_bytes = self._server.max_request_bytes

    @property
    def server_application(self) -> Application[Connection]:
        """The application of connections that need no authentication."""
        return self._server.application

    def loop_time(self) -> float:
        return self._server.loop.time()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> None:
        """Call `callback` after a delay, unless the connection is closed by then."""
        self._server.loop.call_later(delay_s, lambda: None if self.closed else callback())

    def _advance(self, data: memoryview) -> None:
        """Serve every whole frame in `data` (all that is unserved) and keep what is left."""
        server = self._server
        responses = self._responses
        position = check = 0
        end = len(data)
        if end > server.turns.frame_bytes_max:
            self.rest()
        server.serving = self
        try:
            while end - position >= 4 and not self._paused:
                (length,) = _unpack_length(data, position)
                if not 0 <= length <= self.max_frame_bytes:
                    self.fail(f"frame of {length} bytes, limit {self.max_frame_bytes}")
                start = position + 4
                stop = start + length
                if stop > end or self.closed:
                    break
                try:
                    answer = self.application.serve(self, data[start:stop])
                except ProtocolError as e:
                    self.fail(str(e))
                    break
                position = stop
                if answer.__class__ is tuple and not responses.pending:
                    responses.ready += answer  # as in `add`, without the call
                elif answer is not None and responses.add(answer) and server.pool.held > server.pool.limit:
                    # Pending requests may have been copied; reading pauses until some are done.
                    self._wait_for_buffer()
                if stop == end:  # nearly always; it takes fewer steps than the condition of the loop
                    break
                if stop >= check:
                    check = stop + _CHECKED_BYTES
                    if server.turns.is_share_over():
                        self.rest()
            if server.due:
                server.run_due()
        finally:
            server.serving = None
        if responses.ready:
            responses.flush()
        if position == end:
            if self._partial is not None:
                self._release_buffer()
        elif not self.closed:
            self._keep(data, position)

    def _keep(self, data: memoryview, position: int) -> None:
        """Keep `data[position:]`, in a buffer that has room for the frame to go on."""
        have = len(data) - position
        size = 4 + _unpack_length(data, position)[0] if have >= 4 else 4
        growing, began = None, self.active_at
        if not position and (partial := self._partial) is not None:
            if not have == len(partial.buffer) < size:
                partial.measure(size)
                return
            growing, began = partial.buffer, partial.began
        buffer = self._pool.take(max(size, have), have, growing, self.address)
        if buffer is None:
            self._wait_for_buffer()
            return
        kept = PartialFrame(buffer, data[position:], size, began)
        self._release_buffer()
        self._partial, self._partial_pool = kept, self._pool

    def _wait_for_buffer(self) -> None:
        if not self._waiting_for_buffer:
            self._waiting_for_buffer = True
            self._pool.wait(self._buffer_came_back)
            self._update_reading()

    def _buffer_came_back(self) -> None:
        self._waiting_for_buffer = False
        self._update_reading()

    def _release_buffer(self) -> None:
        if self._partial is not None:
            self._partial_pool.give_back(self._partial.buffer, self.address)
            self._partial = None

    def _output_changed(self) -> None:
        self._write_blocked = blocked = self._output.is_blocked
        self._server.unsent.changed(self, self._output.unsent if blocked else 0)
        self._update_reading()

    # -- back pressure and end ------------------------------------------------------------------------

    def _must_pause(self) -> bool:
        return (
            self._write_blocked
            or self._waiting_for_buffer
            or self._muting.is_active
            or self._responses.is_full
        )

    def _update_reading(self) -> None:
        if self.closed or self._must_pause() == self._paused:
            return
        if self._paused:
            # Not from here: we may be inside the loop that serves frames.
            self._server.loop.call_soon(self._resume)
        else:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        """Serve what arrived before the pause, then read on, unless there is a reason again by now."""
        if self.closed or not self._paused or self._must_pause():
            return
        self._paused = False
        if (partial := self._partial) is not None:
            partial.began = self._server.loop.time()
            if partial.filled >= partial.need:
                self._advance(partial.view[: partial.filled])
        if not (self._paused or self.closed):
            self._transport.resume_reading()

    def hold(self) -> None:
        """Serve nothing until `release`; for a connection that has just been made."""
        self._muting.hold()
        self._paused = True
        # asyncio starts to read once a connection is made, also after `pause_reading`.
        self._server.loop.call_soon(self._stop_reading)

    @property
    def is_held(self) -> bool:
        return self._muting.is_held

    def release(self) -> None:
        """Serve a connection that was held."""
        self._muting.release()
        if self.pending_since is not None:
            self.pending_since = self._server.loop.time()
        self._unmuted()

    def mute(self, seconds: float) -> None:
        """Serve no further request for a while (KIP-219). Responses still go out."""
        if not self.closed and self._muting.mute(seconds):
            self._update_reading()

    def stall(self, size: int = 0) -> None:
        """Serve no request until `unstall`: a large one, with a copy of `size` bytes, is computed."""
        self._server.pool.charge(size, self.address)
        self._muting.stall()

    def unstall(self, size: int = 0) -> None:
        self._server.pool.release(size, self.address)
        self._muting.unstall()

    def rest(self) -> None:
        """Serve no further request until it is this client's turn: its requests have held the loop."""
        self._muting.rest(self._server.turns, self.owner)

    @property
    def owner(self) -> tuple[str, str]:
        """The client that large requests are computed for: owners take turns."""
        return self.session.principal.name, self.address

    def _unmuted(self) -> None:
        self.active_at = self._server.loop.time()
        self._update_reading()

    def _stop_reading(self) -> None:
        if not self.closed:
            self._transport.pause_reading()

    def fail(self, reason: str) -> None:
        """Close because of what the peer sent; answers that are ready still go out."""
        if not self.closed:
            self._server.rejected(self, reason)
            self.close()

    def abort(self) -> None:
        self.closed = self._responses.is_closed = True
        self._transport.abort()

    def close(self) -> None:
        """Take nothing more, and close once what is ready has gone out."""
        if self._responses.ready:
            self._responses.flush()
        self.closed = self._responses.is_closed = True
        self._transport.close()
