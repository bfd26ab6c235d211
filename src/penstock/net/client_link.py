"""One connection to a broker, from the client's side: a `Conversation` over an asyncio transport.

The link sends requests and matches responses to them. Its owner connects, watches timeouts, and fails the
requests of a link that has ended.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from penstock.model.errors import ProtocolError, UnsupportedVersion
from penstock.net.calls import Call
from penstock.net.peer_errors import PeerLost, PeerRejected
from penstock.ports import Buffer
from penstock.wire.compiler import Part
from penstock.wire.conversation import Conversation, LoginRejected

__all__ = ["ClientLink", "LinkOwner"]


class LinkOwner(Protocol):
    """Receives the events of a link."""

    def link_ready(self, link: ClientLink) -> None:
        """The handshake is done, or the link has authenticated again."""
        ...

    def link_needs_key(self, link: ClientLink, compute: Callable[[], object]) -> None:
        """The login needs a key; `resume` after `compute`, which may run in any thread."""
        ...

    def link_heard(self) -> None:
        """Bytes have arrived."""
        ...

    def link_lost(self, link: ClientLink, reason: str, kind: type[PeerLost] = PeerLost) -> None:
        """The connection has ended, or has received invalid bytes. Its requests fail with `kind`."""
        ...


class ClientLink(asyncio.BufferedProtocol):
    """One connection of a `Peer`, or an attempt to connect: bytes between a transport and a conversation."""

    __slots__ = ("_is_over", "_peer", "_transport", "_waiting", "calls", "channel", "conversation")

    def __init__(self, peer: LinkOwner, conversation: Conversation, waiting: deque[Call]) -> None:
        self._peer = peer
        self._transport: asyncio.Transport | None = None
        self._waiting = waiting
        self._is_over = False
        self.conversation = conversation
        #: sent requests without a response, in the order of sending
        self.calls: deque[Call] = deque()
        #: the TLS connection below, also during its handshake
        self.channel: asyncio.Transport | None = None

    def authenticate(self) -> None:
        """Authenticate again on the same connection."""
        if not self._is_over and self.conversation.has_room:
            self.conversation.authenticate()
            self._write(self.conversation.handshake())

    def secured(self, channel: object) -> None:
        """The TLS handshake is done; `connection_made` has been called."""

    def handshake_failed(self, reason: str) -> None:
        self._peer.link_lost(self, reason)

    def send(self) -> None:
        """Send waiting requests, once the handshake is done and up to the limit of requests in flight."""
        conversation, waiting = self.conversation, self._waiting
        if conversation.peer is None:
            return
        while waiting and conversation.has_room:
            call = waiting.popleft()
            if call.is_over:
                continue
            try:
                _, parts = conversation.request(call.api, call.request, answered=call.answered)
            except UnsupportedVersion as e:
                call.fail(e)
                continue
            if call.answered:
                self.calls.append(call)
            else:
                call.succeed(call.api.response())
            self._write(parts)

    def repeat(self, call: Call, request: bytes) -> None:
        """Send a request that is encoded."""
        assert self._transport is not None
        self.calls.append(call)
        self._transport.write(request)

    def end_if(self, refuses: Callable[[bytes], bool]) -> None:
        """End the connection if the peer's certificate in DER is refused now. The next request connects."""
        certificate: bytes | None = getattr(self.channel, "peer_certificate", None)
        if certificate is not None and refuses(certificate):
            self._peer.link_lost(self, "the certificate of the peer is revoked")

    def abort(self) -> None:
        self._is_over = True
        transport = self._transport or self.channel
        if transport is not None:
            transport.abort()

    def _write(self, parts: list[Part]) -> None:
        assert self._transport is not None
        if parts:
            self._transport.writelines(cast("list[Buffer]", parts))  # no request has a range of a file in it

    # -- asyncio's side -------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.abort()
            return
        connected = transport.get_extra_info("socket")
        if connected is not None:  # a simulated transport has none
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._write(self.conversation.handshake())

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.conversation.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self._is_over:
            return
        self._peer.link_heard()
        conversation = self.conversation
        was_ready = conversation.peer is not None
        had_login = not conversation.is_authenticated
        try:
            responses = conversation.received(nbytes)
        except LoginRejected as e:
            self._peer.link_lost(self, str(e), PeerRejected)
            return
        except ProtocolError as e:
            self._peer.link_lost(self, str(e))
            return
        if was_ready and had_login and conversation.is_authenticated:
            self._peer.link_ready(self)
        for response in responses:
            self.calls.popleft().succeed(response.message)
        if not was_ready or not conversation.has_room:
            if conversation.key_needed is not None:
                self._peer.link_needs_key(self, conversation.key_needed)
            self._write(conversation.handshake())
            if conversation.is_ready and not was_ready:
                self._peer.link_ready(self)
        if self._waiting:
            self.send()

    def resume(self) -> None:
        """Go on with the authentication: its key is computed."""
        if self._is_over:
            return
        try:
            self.conversation.resume()
        except ProtocolError as e:
            self._peer.link_lost(self, str(e))
            return
        self._write(self.conversation.handshake())

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.link_lost(self, f"connection lost: {exc}" if exc else "the peer closed the connection")
