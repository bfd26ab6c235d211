"""TLS between a fake transport and a fake application: handshakes that fail, wait for their turn, or end."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

import pytest

from penstock.net.handshake_turns import HandshakeTurns
from penstock.net.secure_listener import TransitionalTransport
from penstock.net.tls import TlsTransport
from tests.secured import pki


class Wire:
    """The transport below: records what is written, and whether it is closed."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False
        self.pauses = self.resumptions = 0
        #: the options of the socket that were set
        self.options: list[tuple[int, int, int]] = []

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"socket": self, "peername": ("198.51.100.7", 40_000)}.get(name, default)

    def setsockopt(self, *option: int) -> None:
        self.options.append(cast(Any, option))

    def write(self, data: bytes) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.pauses += 1

    def resume_reading(self) -> None:
        self.resumptions += 1


class Application:
    """The protocol above: a buffer of a few bytes, so that data arrives in pieces."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = b""
        self.failures: list[str] = []
        self.is_ended = False
        self._buffer = bytearray(5)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._buffer[:nbytes]

    def handshake_failed(self, reason: str) -> None:
        self.failures.append(reason)
        self.transport.close()

    def secured(self, channel: TlsTransport) -> None: ...

    def eof_received(self) -> bool:
        self.is_ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None: ...


class Timers:
    """An event loop whose timers the test fires."""

    def __init__(self) -> None:
        self.due: list[tuple[float, Any]] = []

    def call_later(self, delay_s: float, callback: Any) -> None:
        self.due.append((delay_s, callback))

    def call_soon(self, callback: Any) -> None:
        callback()


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pki()["server"])
    return made


class Client:
    """The peer's side of a handshake, in memory."""

    def __init__(self) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        trusting = pki().client(None)
        self._tls = trusting.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    def next(self, received: bytes = b"", then: bytes = b"") -> bytes:
        """The bytes after those of the server, with a request once the handshake is done."""
        self._incoming.write(received)
        try:
            self._tls.do_handshake()
            self._tls.write(then)
        except ssl.SSLWantReadError:
            pass
        return self._outgoing.read()

    def close(self) -> bytes:
        """The bytes of `close_notify`, without a wait for the server's."""
        with suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        return self._outgoing.read()

    def is_closed_by(self, received: bytes) -> bool:
        """Whether the server has answered with its own `close_notify`."""
        self._incoming.write(received)
        try:
            self._tls.unwrap()
        except ssl.SSLWantReadError:
            return False
        return True


class Busy(HandshakeTurns):
    """Turns that do not come before `grant`: another handshake has had the one of this iteration."""

    def __init__(self) -> None:
        super().__init__(Later())
        self._is_scheduled = True

    def grant(self) -> None:
        self._next()
        self._is_scheduled = True


class Later:
    def call_soon(self, callback: Any) -> None: ...


def waiting(turns: HandshakeTurns | None = None) -> tuple[TlsTransport, Wire, Application]:
    wire, application = Wire(), Application()
    channel = TlsTransport(cast(Any, Timers()), context, cast(Any, application), turns=turns)
    channel.connection_made(cast(Any, wire))
    return channel, wire, application


def feed(channel: TlsTransport, data: bytes) -> None:
    channel.get_buffer(-1)[: len(data)] = data
    channel.buffer_updated(len(data))


@pytest.mark.parametrize("kind", [TlsTransport, TransitionalTransport])
def test_the_alert_of_a_failed_handshake_is_delayed(kind: type[TlsTransport]) -> None:
    """KIP-306 is about SASL; here it slows down clients that try certificates, too."""
    wire, application, timers = Wire(), Application(), Timers()
    more: Any = {"accepted": lambda: None} if kind is TransitionalTransport else {}
    channel = kind(cast(Any, timers), context, cast(Any, application), failure_delay_s=0.1, **more)
    channel.connection_made(cast(Any, wire))
    feed(channel, b"\x16\x03\x01\x00\x05hello")
    assert len(application.failures) == 1
    assert (wire.written, wire.closed) == (b"", False)
    feed(channel, b"\x16\x03\x01\x00\x05again")
    assert len(application.failures) == 1
    ((delay_s, end),) = timers.due
    end()
    assert delay_s == 0.1
    assert wire.closed and wire.written.startswith(b"\x15\x03"), "an alert"


def test_without_a_delay_a_failed_handshake_ends_at_once() -> None:
    wire, application, timers = Wire(), Application(), Timers()
    channel = TlsTransport(cast(Any, timers), context, cast(Any, application))
    channel.connection_made(cast(Any, wire))
    feed(channel, b"GET / HTTP/1.1\r\n")
    assert wire.closed and not timers.due


def test_event_loops_do_not_share_the_buffer_of_a_read() -> None:
    """Brokers in threads of one process wrote over each other's ciphertext, and connections hung."""

    def buffers(count: int) -> list[memoryview]:
        made = [TlsTransport(cast(Any, Timers()), context, cast(Any, Application())) for _ in range(count)]
        return [each.get_buffer(-1) for each in made]

    first, second = buffers(2)
    with ThreadPoolExecutor(1) as other:
        (third,) = other.submit(buffers, 1).result()
    assert first is second and third.obj is not first.obj


def test_a_peer_without_tls_is_served_during_the_move() -> None:
    wire, application, accepted = Wire(), Application(), []
    channel = TransitionalTransport(
        cast(Any, Timers()), context, cast(Any, application), accepted=lambda: accepted.append(True)
    )
    channel.connection_made(cast(Any, wire))
    feed(channel, b"\0\0\0\x07request")
    assert accepted == [True]
    channel.pause_reading()
    feed(channel, b"\x16more")
    assert application.received == b"\0\0\0\x07request"
    channel.resume_reading()
    assert application.received == b"\0\0\0\x07request\x16more"
    channel.write(b"response")
    channel.close()
    assert (wire.written, wire.closed) == (b"response", True)
    assert channel.peer_certificate is None and not application.failures


def test_a_handshake_waits_for_its_turn() -> None:
    turns, client = Busy(), Client()
    channel, wire, application = waiting(turns)
    feed(channel, client.next())
    assert wire.written == b"" and len(turns) == 1
    turns.grant()
    assert len(wire.written)
    feed(channel, client.next(wire.written, b"request"))
    assert len(application.received) == 0
    turns.grant()
    assert application.received == b"request" and channel.is_open
    assert not len(turns) and not wire.pauses


def test_bytes_that_wait_are_bounded() -> None:
    turns, hello = Busy(), Client().next()
    channel, wire, _ = waiting(turns)
    feed(channel, hello[:100])
    assert wire.pauses == 0
    feed(channel, hello[100:200])
    assert (wire.pauses, wire.resumptions) == (1, 0), "at most two reads are in memory"
    turns.grant()
    assert (wire.resumptions, wire.written) == (1, b"")
    feed(channel, hello[200:])
    turns.grant()
    assert wire.written


def test_the_request_of_a_peer_that_closes_at_once_is_served() -> None:
    """A client may send its last handshake message and a request without response, and close."""
    turns, client = Busy(), Client()
    channel, wire, application = waiting(turns)
    feed(channel, client.next())
    turns.grant()
    feed(channel, client.next(wire.written, b"request"))
    assert channel.eof_received(), "the connection stays open until the bytes are processed"
    turns.grant()
    assert application.received == b"request" and application.is_ended and wire.closed
    assert not application.failures


def test_a_peer_that_closes_during_the_handshake_has_failed() -> None:
    turns = Busy()
    channel, wire, application = waiting(turns)
    feed(channel, Client().next()[:50])
    assert channel.eof_received()
    turns.grant()
    assert len(application.failures) == 1 and wire.closed


def test_a_lost_connection_does_not_wait_for_its_turn() -> None:
    turns = Busy()
    channel, _, _ = waiting(turns)
    feed(channel, Client().next())
    channel.connection_lost(None)
    assert not len(turns)


@pytest.mark.parametrize("tickets", [0, 1])
def test_the_end_of_a_handshake_is_acknowledged_at_once(tickets: int) -> None:
    """A client with Nagle's algorithm sent its first request 40 ms late, after a delayed acknowledgement."""
    made = context()
    made.num_tickets = tickets
    wire, client = Wire(), Client()
    channel = TlsTransport(cast(Any, Timers()), lambda: made, cast(Any, Application()))
    channel.connection_made(cast(Any, wire))
    feed(channel, client.next())
    feed(channel, client.next(wire.written))
    assert channel.is_open
    quick = (socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
    assert wire.options == ([] if tickets else [quick]), "a ticket carries the acknowledgement"


@pytest.mark.parametrize("then", [b"", b"request"])
def test_the_end_of_the_peer_is_answered(then: bytes) -> None:
    """Clients on asyncio wait for it: aiokafka took 30 seconds to close each connection."""
    channel, wire, application = waiting()
    client = Client()
    feed(channel, client.next())
    seen = len(wire.written)
    feed(channel, client.next(wire.written))
    feed(channel, client.next(b"", then) + client.close())
    assert application.received == then
    assert wire.closed and client.is_closed_by(wire.written[seen:])


def test_the_memory_of_openssl_is_freed_with_the_connection() -> None:
    """Brokers collect garbage rarely: a storm of 1,200 connections left 36 MB."""
    channel, _, _ = waiting()
    tls = weakref.ref(channel.get_extra_info("ssl_object"))
    assert tls() is not None
    gc.disable()
    try:
        channel.connection_lost(None)
        assert tls() is None
    finally:
        gc.enable()
