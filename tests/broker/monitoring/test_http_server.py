"""Hostile scrapers: slow, many, malformed, without the token."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import pytest

from penstock.broker.monitoring import http_server
from penstock.broker.monitoring.documents import Document
from penstock.broker.monitoring.http_server import HttpConnection, HttpServer, Policy
from penstock.observability.http import Request
from tests.broker.events import Events

LARGE = 8 << 20


async def page(request: Request) -> Document:
    size = LARGE if request.path == "/large" else 5
    return Document(HTTPStatus.OK, "text/plain", [b"x" * (64 << 10)] * (size >> 16) or [b"hello"])


def served(test: Callable[[HttpServer, int], Awaitable[None]], **policy: object) -> None:
    async def run() -> None:
        settings = {"connections_max": 4, "token": None, "local_only": True} | policy
        server = HttpServer(page, Policy(**settings))  # type: ignore[arg-type]
        port = await server.start("127.0.0.1", 0)
        try:
            async with asyncio.timeout(60):
                await test(server, port)
        finally:
            await server.stop()

    asyncio.run(run())


async def call(port: int, text: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(text.replace("\n", "\r\n").encode())
    found = await reader.read()
    writer.close()
    return found


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - the condition is about another task
        await asyncio.sleep(0.005)


def test_requests_one_after_the_other_and_at_once() -> None:
    async def test(server: HttpServer, port: int) -> None:
        twice = "GET / HTTP/1.1\n\nGET / HTTP/1.1\nConnection: close\n\n"
        found = await call(port, twice)
        assert found.count(b"HTTP/1.1 200 OK") == found.count(b"hello") == 2
        assert (await call(port, "HEAD / HTTP/1.1\nConnection: close\n\n")).endswith(b"\r\n\r\n")
        await until(lambda: not server.connections)

    served(test)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("POST / HTTP/1.1\n\n", b"405"),
        ("\x16\x03\x01 TLS\n\n", b"400"),
        ("GET / HTTP/1.1\nHost: evil.example\n\n", b"421"),
        ("G" * 8193, b"431"),
    ],
)
def test_malformed_and_misdirected_requests(text: str, status: bytes) -> None:
    async def test(server: HttpServer, port: int) -> None:
        assert (await call(port, text)).split(b" ")[1] == status
        assert b"hello" in await call(port, "GET / HTTP/1.0\nHost: localhost:1\n\n")

    served(test)


def test_a_token_is_needed_except_for_probes() -> None:
    async def test(server: HttpServer, port: int) -> None:
        assert (await call(port, "GET /metrics HTTP/1.0\n\n")).startswith(b"HTTP/1.1 401")
        assert b"hello" in await call(port, "GET /metrics HTTP/1.0\nAuthorization: Bearer secret\n\n")
        for path in ("/healthz", "/readyz", "/readyz/in-sync"):
            assert b"hello" in await call(port, f"GET {path} HTTP/1.0\n\n")

    served(test, token="secret")


def test_a_scraper_that_never_reads_costs_little_and_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_RESPONSE_S", 0.2)

    async def test(server: HttpServer, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        await until(lambda: any(each.busy for each in server.connections))
        (connection,) = server.connections
        assert connection._transport is not None
        while server.connections:
            assert connection._transport is None or connection._transport.get_write_buffer_size() < 1 << 20
            await asyncio.sleep(0.01)
        assert b"hello" in await call(port, "GET / HTTP/1.0\n\n")
        writer.close()

    served(test)


def test_a_scraper_that_sends_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_REQUEST_S", 0.05)

    async def test(server: HttpServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()

    served(test)


def test_many_connections_are_bounded_and_a_new_scraper_gets_through() -> None:
    async def test(server: HttpServer, port: int) -> None:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        assert b"hello" in await call(port, "GET / HTTP/1.0\n\n")
        assert len(server.connections) <= 4
        for _, writer in idle:
            writer.close()

    served(test)


def test_failed_handshakes_are_seldom_logged(events: Events) -> None:
    async def fail_often(server: HttpServer, port: int) -> None:
        for _ in range(200):
            HttpConnection(server, page).handshake_failed("no TLS")

    served(fail_often)
    assert len(events.of("monitoring_handshake_failed")) == 60
