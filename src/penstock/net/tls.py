"""TLS between a transport and a protocol: one object that is a protocol to the loop and a transport to the
application.

The records go through two memory BIOs, so the same code runs on uvloop, on asyncio and on a simulated
network. A server calls `connection_made` of its application when it accepts a connection, before the
handshake, because limits and pacing come first. A client calls it once the handshake is done and the host
name is verified.

Plaintext is decrypted straight into the application's buffers. Ciphertext that waits for the application is
bounded by one read: reading pauses with the application.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from penstock.net.handshake_turns import HandshakeTurns
from penstock.ports import Buffer

__all__ = ["SecureProtocol", "TlsTransport"]

#: ciphertext of one read
_READ_BYTES: Final = 64 << 10
#: plaintext of one call to OpenSSL: it makes records of 16 KiB
_RECORD: Final = 16 << 10
#: None where the operating system has no such option
_QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)


class _Scratch(threading.local):
    """The buffer of one read. All connections of an event loop share it, because it is drained at once.

    Why per thread: a process may have several event loops, each in its thread, as clusters in tests do.
    """

    def __init__(self) -> None:
        self.view = memoryview(bytearray(_READ_BYTES))


_scratch: Final = _Scratch()


class SecureProtocol(Protocol):
    """The application on a `TlsTransport`: asyncio's BufferedProtocol, and the outcome of the handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def eof_received(self) -> bool: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def secured(self, channel: TlsTransport) -> None:
        """The handshake is done."""
        ...

    def handshake_failed(self, reason: str) -> None:
        """The handshake has failed; the connection is being closed."""
        ...


class TlsTransport(asyncio.BufferedProtocol, asyncio.Transport):
    """A TLS connection. `is_open` is true from the end of the handshake until the connection closes.

    Why it has more than 25 methods: it implements the transport of asyncio beside the steps of TLS.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        context: Callable[[], ssl.SSLContext],
        application: SecureProtocol,
        *,
        server_hostname: str | None = None,
        failure_delay_s: float = 0.0,
        turns: HandshakeTurns | None = None,
    ) -> None:
        """`context` is called when the connection is made. A server has no `server_hostname`.

        The alert of a failed handshake is sent, and the connection closed, after `failure_delay_s`. The steps
        of a server's handshake wait for `turns`.
        """
        self._loop = loop
        self._context = context
        self._application = application
        self._hostname = server_hostname
        self._failure_delay_s = failure_delay_s
        #: whether the handshake has failed, and the connection is closed after the delay
        self._failing = False
        self._transport: asyncio.Transport | None = None
        self._scratch = _scratch.view
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._turns = turns
        #: whether received bytes of the handshake wait for their turn
        self._is_waiting = False
        #: whether reading is paused while they wait
        self._is_suspended = False
        #: whether the peer has closed its side of the connection while they wait
        self._is_ended = False
        self._paused = False
        self._reading = False
        self._lost = False
        #: whether anything has arrived: a peer that only looks whether the port is open has sent nothing
        self._heard = False
        self.is_open = False

    # -- the loop's side ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        is_client = self._hostname is not None
        try:
            self._tls = self._context().wrap_bio(
                self._incoming, self._outgoing, server_side=not is_client, server_hostname=self._hostname
            )
        except (OSError, ValueError) as e:
            self._fail(f"TLS cannot start: {e}")
            return
        if is_client:
            self._shake()
        else:
            self._application.connection_made(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._scratch

    def buffer_updated(self, nbytes: int) -> None:
        self._heard = True
        self._incoming.write(self._scratch[:nbytes])
        if self._lost or self._failing or self._tls is None:
            return
        if self.is_open:
            self._read()
        elif self._is_waiting:
            # The bytes that wait are bounded by two reads.
            self._is_suspended = True
            self._pause_transport()
        elif self._turns is None:
            self.advance_handshake()
        else:
            self._is_waiting = True
            self._turns.take(self, self._address)

    def eof_received(self) -> bool:
        if self._is_waiting:
            # The peer may have sent the end of the handshake, and a request after it.
            self._is_ended = True
            return True
        if not self.is_open:
            if self._heard and not self._failing:
                self._application.handshake_failed("the peer closed the connection during the TLS handshake")
            return False
        self._application.eof_received()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self.is_open = False
            if self._is_waiting and self._turns is not None:
                self._turns.discard(self, self._address)
            self._application.connection_lost(exc)
            # OpenSSL's memory, 30 KB per connection, is freed now, not with the next garbage collection: the
            # transport and its application refer to each other.
            self._tls = None

    def pause_writing(self) -> None:
        self._application.pause_writing()

    def resume_writing(self) -> None:
        self._application.resume_writing()

    # -- handshake and records ------------------------------------------------------------------------

    def advance_handshake(self) -> None:
        """Continue the handshake with the received bytes, and read the application data after it."""
        self._is_waiting = False
        if self._lost or self._failing or self._tls is None:
            return
        if self.is_open or self._shake():
            self._read()
        if self._is_ended:
            self.eof_received()
            self.close()
        elif self._is_suspended:
            self._is_suspended = False
            if not self._paused and self._transport is not None and not self._transport.is_closing():
                self._transport.resume_reading()

    def _shake(self) -> bool:
        """Go on with the handshake; true once it is done."""
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except (ssl.SSLError, ssl.CertificateError) as e:
            self._fail(f"TLS handshake failed: {handshake_error(e)}", self._failure_delay_s)
            return False
        if self._is_revoked():
            self._fail("TLS handshake failed: the peer's certificate is revoked", self._failure_delay_s)
            return False
        if self._hostname is None and not self._outgoing.pending:
            self._acknowledge()
        self._flush()
        self.is_open = True
        if self._hostname is not None:
            self._application.connection_made(self)
        self._application.secured(self)
        return not self._lost and self.is_open

    def _is_revoked(self) -> bool:
        """Whether the peer's certificate is on a revocation list of the context."""
        lists: Any = getattr(self.get_extra_info("sslcontext"), "revocations", None)
        certificate = None if lists is None else self.peer_certificate
        return certificate is not None and lists.has(certificate)

    def _acknowledge(self) -> None:
        """Send the TCP acknowledgement of the client's last handshake message at once.

        Why: a server of TLS 1.3 that issues no tickets does not respond to that message. A client with
        Nagle's algorithm holds its first request back until the message is acknowledged, which takes the
        kernel 40 ms.
        """
        connected = None if self._transport is None else self._transport.get_extra_info("socket")
        if connected is not None and _QUICK_ACK is not None:
            with suppress(OSError):
                connected.setsockopt(socket.IPPROTO_TCP, _QUICK_ACK, 1)

    def _read(self) -> None:
        """Decrypt what has arrived into the application's buffers, until it pauses."""
        tls, application = self._tls, self._application
        if tls is None or self._reading:
            return
        self._reading = True
        try:
            while self.is_open and not self._paused:
                view = application.get_buffer(-1)
                room, filled, more, is_ended = len(view), 0, True, False
                try:
                    while filled < room and not is_ended:
                        count = tls.read(room - filled, view[filled:] if filled else view)
                        filled += cast(int, count)
                        # The peer has sent `close_notify`.
                        is_ended = not count
                except ssl.SSLWantReadError:
                    more = False
                except ssl.SSLZeroReturnError:
                    is_ended = True
                if filled:
                    application.buffer_updated(filled)
                if is_ended:
                    self.close()
                if is_ended or not more:
                    break
        except ssl.SSLError as e:
            self._fail(f"TLS: {handshake_error(e)}")
        finally:
            self._reading = False
        # Key updates and alerts of TLS 1.3 are answered while reading.
        if self._outgoing.pending:
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending and self._transport is not None and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def _fail(self, reason: str, delay_s: float = 0.0) -> None:
        self.is_open = False
        self._failing = delay_s > 0
        self._application.handshake_failed(reason)
        if self._failing:
            # A peer that tries certificate after certificate waits for each alert (KIP-306).
            self._loop.call_later(delay_s, self._end_failure)
        else:
            self._end_failure()

    def _end_failure(self) -> None:
        self._failing = False
        self._flush()
        if self._transport is not None:
            # Not at once: an alert may wait to be sent.
            self._transport.close()

    # -- the application's side -----------------------------------------------------------------------

    @property
    def _address(self) -> str:
        peer = self.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    @property
    def peer_certificate(self) -> bytes | None:
        """The peer's certificate in DER, None if it sent none."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)

    @property
    def version(self) -> str | None:
        return None if self._tls is None else self._tls.version()

    def write(self, data: Buffer) -> None:
        if not self.is_open or self._tls is None:
            return
        tls = self._tls
        try:
            if len(data) <= _RECORD:
                tls.write(data)
            else:
                view, position, end = memoryview(data), 0, len(data)
                while position < end:
                    position += tls.write(view[position : position + _RECORD])
        except ssl.SSLError as e:
            self._fail(f"TLS: {handshake_error(e)}")
            return
        assert self._transport is not None
        self._transport.write(self._outgoing.read())

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        self.write(b"".join(list_of_data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "sslcontext":
            return self._tls.context if self._tls is not None else default
        if name == "ssl_object":
            return self._tls
        return default if self._transport is None else self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if self._transport is not None:
            self._transport.set_write_buffer_limits(high, low)

    def pause_reading(self) -> None:
        self._paused = True
        self._pause_transport()

    def _pause_transport(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._paused = False
        # Not from here: the application may be inside the loop that serves frames.
        self._loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._lost or self._paused or self._transport is None or self._transport.is_closing():
            return
        self._read()
        if not self._paused and not self._transport.is_closing():
            self._transport.resume_reading()

    def is_closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def close(self) -> None:
        """Send `close_notify`, and close once everything that was written has gone out."""
        if self.is_open and self._tls is not None:
            self.is_open = False
            # The peer's own close_notify is not awaited.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()
        if self._transport is not None and not self._failing:
            self._transport.close()

    def abort(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()


def handshake_error(error: Exception) -> str:
    """The reason in an error of OpenSSL, without the place in its source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    reason = getattr(error, "reason", None)
    return str(reason).replace("_", " ").lower() if reason else str(error)
