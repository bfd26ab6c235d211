"""Registries that are slow, huge or hostile: they cost a bounded time in a thread, and bounded memory."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.registry.http import BYTES_MAX, RegistryHttp, RegistryRefused, RegistryUnreachable
from penstock.registry.settings import registry_settings
from tests.console.registry_server import registry_server
from tests.secured import pki

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@contextmanager
def raw_server(serve: Callable[[socket.socket], None], tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that treats each connection as `serve` does."""
    ended = threading.Event()

    def accept(listening: socket.socket) -> None:
        while True:
            try:
                connected, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=handle, args=[connected], daemon=True).start()

    def handle(connected: socket.socket) -> None:
        try:
            wrapped = connected if tls is None else tls.wrap_socket(connected, server_side=True)
            with wrapped:
                wrapped.recv(65536)
                serve(wrapped)
        except OSError:
            return

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, args=[listening], daemon=True)
        thread.start()
        scheme = "http" if tls is None else "https"
        try:
            yield f"{scheme}://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            listening.shutdown(socket.SHUT_RDWR)


def fetched(url: str, timeout_s: float = 1.0, pairs: Mapping[str, str] | None = None) -> list[str]:
    http = RegistryHttp(registry_settings(pairs or {}, url), timeout_s=timeout_s)
    return asyncio.run(http.send(list[str], "GET", "/subjects"))


def keep_silent(connected: socket.socket) -> None:
    connected.recv(1)


def drip(connected: socket.socket, head: bytes, part: bytes) -> None:
    """Send a part every 20 ms until the other side closes the connection."""
    connected.sendall(head)
    while True:
        connected.sendall(part)
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"", b"H"),
        (HEAD + b"X-Pad: ", b"x"),
        (HEAD + b"Content-Length: 4000000\r\n\r\n[", b" "),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_a_registry_that_never_ends_is_left_at_the_deadline(head: bytes, part: bytes) -> None:
    with raw_server(lambda connected: drip(connected, head, part)) as url:
        began = time.monotonic()
        with pytest.raises(RegistryUnreachable):
            fetched(url)
        # One second, whatever comes; urllib would wait as long as something does.
        assert time.monotonic() - began < 20


def test_a_silent_registry_is_reported() -> None:
    with (
        raw_server(keep_silent) as url,
        pytest.raises(RegistryUnreachable, match=r"does not answer within 0\.2 s"),
    ):
        fetched(url, 0.2)


def test_an_answer_without_end_costs_bounded_memory() -> None:
    def flood(connected: socket.socket) -> None:
        connected.sendall(HEAD + b"Content-Length: 100000000000\r\n\r\n[")
        while True:
            connected.sendall(b" " * 65536)

    with raw_server(flood) as url:
        tracemalloc.start()
        try:
            with pytest.raises(RegistryUnreachable, match="more than 4 MiB"):
                fetched(url, 30.0)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 4 * BYTES_MAX


@pytest.mark.parametrize(
    "body", [b"<html>", b'{"a": 1}', b"[1]", b"[" * 100_000, b'["\xff"]', b""], ids=range(6)
)
def test_an_answer_that_is_not_of_the_api_is_an_error(body: bytes) -> None:
    answer = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    with (
        raw_server(lambda connected: connected.sendall(answer)) as url,
        pytest.raises(RegistryUnreachable, match="what its API does not have"),
    ):
        fetched(url)


def test_credentials_are_sent_and_never_repeated() -> None:
    with registry_server() as registry:
        registry.user = "ada:s3cret"
        assert fetched(registry.url, pairs={"basic.auth.user.info": "ada:s3cret"}) == []
        with pytest.raises(RegistryRefused, match="refuses the credentials") as raised:
            fetched(registry.url, pairs={"basic.auth.user.info": "ada:wr0ng"})
        # This registry repeats the header in its error.
        assert (raised.value.status, "not allowed: Basic ***" in str(raised.value)) == (403, True)
        with pytest.raises(RegistryRefused, match="Unauthorized") as raised:
            fetched(registry.url)
        assert raised.value.status == 401


def test_a_redirect_gets_no_credentials() -> None:
    with registry_server() as other:
        answer = f"HTTP/1.1 307 Away\r\nLocation: {other.url}/subjects\r\nContent-Length: 0\r\n\r\n".encode()
        with (
            raw_server(lambda connected: connected.sendall(answer)) as url,
            pytest.raises(RegistryRefused, match="redirects to another address"),
        ):
            fetched(url, pairs={"bearer.auth.token": "t0ken"})
        assert other.requested == []


def test_requests_beyond_a_limit_do_not_wait() -> None:
    async def many(url: str) -> list[object]:
        http = RegistryHttp(registry_settings({}, url), timeout_s=0.2)
        requests = [http.send(list[str], "GET", "/subjects") for _ in range(80)]
        return await asyncio.gather(*requests, return_exceptions=True)

    with raw_server(keep_silent) as url:
        found = [str(each) for each in asyncio.run(many(url))]
    assert sum("too many requests" in text for text in found) == 16
    assert sum("does not answer within" in text for text in found) == 64


def test_the_loop_goes_on_while_a_registry_answers() -> None:
    subjects = b"[" + b",".join(b'"subject-%06d-value"' % n for n in range(150_000)) + b"]"
    answer = HEAD + b"Content-Length: %d\r\n\r\n" % len(subjects) + subjects

    async def measured(url: str) -> tuple[int, int]:
        http = RegistryHttp(registry_settings({}, url), timeout_s=30.0)
        turns = 0

        async def turn() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        turning = asyncio.create_task(turn())
        found = await http.send(list[str], "GET", "/subjects")
        turning.cancel()
        return len(found), turns

    with raw_server(lambda connected: connected.sendall(answer)) as url:
        count, turns = asyncio.run(measured(url))
    assert (count, turns > 10) == (150_000, True)


def test_tls_with_an_own_authority(tmp_path: Path) -> None:
    certificates = pki()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificates["server"])
    answer = HEAD + b'Content-Length: 5\r\n\r\n["a"]'
    with raw_server(lambda connected: connected.sendall(answer), server) as url:
        assert fetched(url, 30.0, {"ca.location": certificates["ca"]}) == ["a"]
        with pytest.raises(RegistryUnreachable, match="certificate verify failed"):
            fetched(url, 30.0)
    with pytest.raises(OSError, match="No such file"):
        RegistryHttp(registry_settings({"ca.location": str(tmp_path / "nowhere")}, "https://r.example"))
