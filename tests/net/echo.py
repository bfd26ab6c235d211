"""A server that sends every frame back, and its clients."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from penstock.model.errors import ProtocolError
from penstock.net.connection import Connection
from penstock.net.deferred import Deferred
from penstock.net.limits import Limits
from penstock.net.listener import Listener
from penstock.net.response_queue import Answer, Parts
from penstock.net.server import Server
from penstock.ports import FileRange
from tests.net.time_by_hand import TimeByHand


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


class Echo:
    """Answers a frame with itself; commands make it wait, fail, stay silent or send a file."""

    def __init__(self) -> None:
        self.waiting: list[Deferred[Parts | None]] = []
        self.served = 0
        self.file: FileRange | None = None
        self.lost = 0

    def serve(self, connection: Connection, data: memoryview) -> Answer:
        self.served += 1
        payload = bytes(data)
        if payload.startswith(b"wait"):
            deferred: Deferred[Parts | None] = Deferred()
            self.waiting.append(deferred)
            return deferred
        if payload == b"silent":
            return None
        if payload == b"bad":
            raise ProtocolError("bad frame")
        if payload == b"file":
            assert self.file is not None
            return [struct.pack(">i", self.file.size), self.file]
        return [frame(payload)]

    def connection_lost(self, connection: Connection) -> None:
        self.lost += 1


@asynccontextmanager
async def serving(
    app: Echo, clock: TimeByHand | None = None, **limits: Any
) -> AsyncIterator[tuple[Server, int]]:
    server = Server(Limits(**limits), lambda *args, **kwargs: None, idle_check_s=0.02)
    listener = Listener("PLAINTEXT", "127.0.0.1", 0)
    await server.bind([listener])
    if clock is not None:
        server.loop = clock.as_loop
    await server.serve(app)
    try:
        yield server, listener.port
    finally:
        await server.stop()
        while _peers:
            _peers.pop()[1].transport.abort()
        await asyncio.sleep(0)


Peer = tuple[asyncio.StreamReader, asyncio.StreamWriter]


_peers: list[Peer] = []


async def connect(port: int, limit: int = 1 << 16) -> Peer:
    """A connection that `serving` closes."""
    peer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    _peers.append(peer)
    return peer


def on_uvloop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    def run(**kwargs: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(asyncio.wait_for(test(**kwargs), 60))

    run.__name__ = test.__name__
    run.__doc__ = test.__doc__
    return run


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def settled(value: Callable[[], int]) -> int:
    """The value once it stays the same for 200 turns of the event loop, which serves both ends."""
    last, same = value(), 0
    while same < 200:
        await asyncio.sleep(0)
        now = value()
        same = same + 1 if now == last else 0
        last = now
    return last


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.001)
