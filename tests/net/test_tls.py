"""TLS between a fake transport and a fake application: the end of a failed handshake."""

from __future__ import annotations

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from penstock.net.tls import TlsTransport
from penstock.net.tls_transition import TransitionalTransport
from tests.secured import pki


class Wire:
    """The transport below: records what is written, and whether it is closed."""

    def __init__(self) -> None:
        self.written = b""
        self.closed = False

    def write(self, data: bytes) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Application:
    """The protocol above: a buffer of a few bytes, so that data arrives in pieces."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.received = b""
        self.failures: list[str] = []
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
