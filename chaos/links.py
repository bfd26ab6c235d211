"""The network among brokers: a proxy in front of each internal listener, which can hold back data.

Brokers know each other by the proxies' ports only. The client id of the first request identifies the broker
that connects (`node-N`, or the client id of Apache Kafka's brokers), so that the link from one broker to one
other can be cut alone. A cut link keeps its connections: data that is sent meanwhile arrives when the link is
healed, as with TCP.
"""

from __future__ import annotations

import asyncio
import re
import struct
import threading
from collections import defaultdict
from collections.abc import Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final, TypeVar

from chaos.network import Place
from lab.server import free_ports
from penstock.testing.links import stop_listening

__all__ = ["Links"]

_HOST: Final = "127.0.0.1"
_HEADER: Final = struct.Struct(">ihhih")
_NODE: Final = re.compile(r"(?:node-|raft-client-|broker-)?(\d+)(?:-fetcher-\d+)?")
_CHUNK: Final = 1 << 16
_PATIENCE_S: Final = 60.0
T = TypeVar("T")


class Links:
    """Runs in a thread of its own; `cut` and `heal` may be called from any."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._servers: list[asyncio.Server] = []
        #: the loop itself would forget them
        self._passing: set[asyncio.Task[None]] = set()
        self._clear: dict[tuple[int, int], asyncio.Event] = defaultdict(_set_event)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def place(self, node: int) -> Place:
        """On the loopback device, with a proxy before the internal listener."""
        client, internal = free_ports(2)
        return Place(_HOST, client, internal, f"{_HOST}:{self.add(node, internal)}")

    def add(self, node: int, port: int) -> int:
        """A proxy of the node that listens on `port`; returns the proxy's own."""
        return self._call(self._add(node, port))

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        """Let nothing pass from the first node of each pair to the second."""
        for way in ways:
            self._loop.call_soon_threadsafe(self._clear[way].clear)

    def heal(self) -> None:
        for clear in list(self._clear.values()):
            self._loop.call_soon_threadsafe(clear.set)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_PATIENCE_S)

    async def _add(self, node: int, port: int) -> int:
        async def passing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # A broker that is down has its connections dropped at once, as its system would refuse them.
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._pass_on(node, port, reader, writer)

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            # Here, not in the task: one that is cancelled before its first step closes nothing.
            task = self._loop.create_task(passing(reader, writer))
            self._passing.add(task)
            task.add_done_callback(lambda ended: writer.transport.abort())
            task.add_done_callback(self._passing.discard)

        server = await asyncio.start_server(accepted, _HOST, 0)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    async def _pass_on(
        self, node: int, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(_HOST, port)
        source: asyncio.Future[int] = self._loop.create_future()

        async def requests() -> None:
            who, head = await _first_request(reader)
            source.set_result(who)
            await _pump(reader, far_writer, self._clear[who, node], head)

        async def answers() -> None:
            # A broker does not speak first, but it may end before the visitor has said anything.
            if data := await far_reader.read(_CHUNK):
                await _pump(far_reader, writer, self._clear[node, await source], data)

        ways = [self._loop.create_task(requests()), self._loop.create_task(answers())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            far_writer.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _close(self) -> None:
        for server in self._servers:
            stop_listening(server)
        # A connection that is being accepted gets its transport in this turn, and its task in a later one.
        await asyncio.sleep(0)
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
        # Aborted transports are closed after this turn of the loop.
        await asyncio.sleep(0)


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def _first_request(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """The id of the connecting broker, and the bytes read so far; -1 if it is no broker."""
    head = await reader.readexactly(_HEADER.size)
    size = _HEADER.unpack(head)[-1]
    name = await reader.readexactly(max(0, size))
    node = _NODE.fullmatch(name.decode(errors="replace"))
    return int(node[1]) if node else -1, head + name


async def _pump(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clear: asyncio.Event, data: bytes
) -> None:
    """Pass on `data` and all that follows it, while the way is clear; an end waits for that, too."""
    while data:
        await clear.wait()
        writer.write(data)
        await writer.drain()
        data = await reader.read(_CHUNK)
    await clear.wait()
