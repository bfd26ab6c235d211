"""Frames over real sockets: order, back pressure, limits, and what a hostile peer can do."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.base.system_ports import OsFiles
from penstock.net.connection import Connection
from penstock.net.limits import Limits
from penstock.net.listener import Listener
from penstock.net.response_queue import MAX_IN_FLIGHT, Answer
from penstock.net.server import Server
from penstock.ports import FileRange
from tests.net.echo import Echo, connect, frame, on_uvloop, read_frame, serving, settled, until
from tests.net.time_by_hand import TimeByHand


@on_uvloop
async def test_frames_split_anywhere_arrive_whole() -> None:
    app = Echo()
    async with serving(app) as (_, port):
        reader, writer = await connect(port)
        payloads = [b"", b"x", os.urandom(3000), os.urandom(300_000), b"tail"]
        stream = b"".join(map(frame, payloads))
        for cut in (1, 2, 3, 5, 4096, 200_000):
            for start in range(0, len(stream), max(cut, len(stream) // 50)):
                writer.write(stream[start : start + max(cut, len(stream) // 50)])
                await asyncio.sleep(0)
            assert [await read_frame(reader) for _ in payloads] == payloads


@on_uvloop
async def test_answers_keep_the_order_of_requests() -> None:
    app = Echo()
    async with serving(app) as (_, port):
        reader, writer = await connect(port)
        writer.write(frame(b"wait 1") + frame(b"a") + frame(b"silent") + frame(b"wait 2") + frame(b"b"))
        await until(lambda: app.served == 5)
        app.waiting[1].resolve([frame(b"second")])
        app.waiting[0].resolve([frame(b"first")])
        assert [await read_frame(reader) for _ in range(4)] == [b"first", b"a", b"second", b"b"]


@on_uvloop
async def test_a_deferred_none_is_no_answer() -> None:
    app = Echo()
    async with serving(app) as (_, port):
        reader, writer = await connect(port)
        writer.write(frame(b"wait") + frame(b"after"))
        await until(lambda: app.served == 2)
        app.waiting[0].resolve(None)
        assert await read_frame(reader) == b"after"


@on_uvloop
async def test_requests_stop_being_read_while_too_many_answers_are_owed() -> None:
    app = Echo()
    async with serving(app) as (_, port):
        reader, writer = await connect(port)
        total = MAX_IN_FLIGHT * 3
        writer.write(frame(b"wait") * total)
        await until(lambda: app.served >= MAX_IN_FLIGHT)
        for _ in range(20):
            await asyncio.sleep(0)
        assert app.served == MAX_IN_FLIGHT
        for i in range(total):
            await until(lambda i=i: len(app.waiting) > i)  # type: ignore[misc]
            app.waiting[i].resolve([frame(str(i).encode())])
        assert [await read_frame(reader) for _ in range(total)] == [str(i).encode() for i in range(total)]


@on_uvloop
async def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    app = Echo()
    async with serving(app) as (_, port):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setblocking(False)
        payload = frame(b"x" * 100_000)
        loop = asyncio.get_running_loop()
        sending = loop.create_task(loop.sock_sendall(sock, payload * 400))
        assert await settled(lambda: app.served) < 400
        received = 0
        while received < len(payload) * 400:
            received += len(await loop.sock_recv(sock, 1 << 20))
        await sending
        sock.close()
        assert app.served == 400


@pytest.mark.parametrize("length", [-1, -(2**31), 1001, 2**31 - 1])
def test_a_frame_of_impossible_length_costs_its_connection(length: int) -> None:
    @on_uvloop
    async def check() -> None:
        app = Echo()
        async with serving(app, max_request_bytes=1000) as (server, port):
            reader, writer = await connect(port)
            other_reader, other_writer = await connect(port)
            writer.write(frame(b"before") + struct.pack(">i", length) + b"rest")
            assert await read_frame(reader) == b"before"
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await read_frame(reader)
            other_writer.write(frame(b"unharmed"))
            assert await read_frame(other_reader) == b"unharmed"
            assert server.counts.rejected == 1

    check()


@on_uvloop
async def test_a_protocol_error_costs_its_connection() -> None:
    app = Echo()
    async with serving(app) as (server, port):
        reader, writer = await connect(port)
        writer.write(frame(b"bad") + frame(b"never served"))
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await read_frame(reader)
        assert (app.served, server.counts.rejected) == (1, 1)
        await until(lambda: app.lost == 1)


@on_uvloop
async def test_waiting_requests_are_cancelled_with_their_connection() -> None:
    app = Echo()
    cancelled = []
    async with serving(app) as (_, port):
        _, writer = await connect(port)
        writer.write(frame(b"wait"))
        await until(lambda: bool(app.waiting))
        app.waiting[0].on_cancel = lambda: cancelled.append(True)
        writer.close()
        await until(lambda: bool(cancelled))
        app.waiting[0].resolve([b"too late"])


@on_uvloop
async def test_connection_limits() -> None:
    app = Echo()
    async with serving(app, max_connections_per_ip=2) as (server, port):
        first = [await connect(port) for _ in range(2)]
        await until(lambda: len(server.connections) == 2)
        reader, _ = await connect(port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        assert server.counts.refused == 1
        first[0][1].close()
        await until(lambda: len(server.connections) == 1)
        reader, writer = await connect(port)
        writer.write(frame(b"again"))
        assert await read_frame(reader) == b"again"


@on_uvloop
async def test_an_address_may_have_a_limit_of_its_own() -> None:
    by_ip = {"127.0.0.1": 1, "10.0.0.1": 0}
    async with serving(Echo(), max_connections_per_ip=0, max_connections_by_ip=by_ip) as (server, port):
        reader, writer = await connect(port)
        writer.write(frame(b"welcome"))
        assert await read_frame(reader) == b"welcome"
        reader, _ = await connect(port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        assert server.counts.refused == 1


@on_uvloop
async def test_a_muted_connection_is_not_read_and_answers_go_out() -> None:
    """KIP-219: requests that arrive while the connection is muted are served after that."""
    clock, app = TimeByHand(), Echo()
    async with serving(app, clock, max_idle_s=1.0) as (server, port):
        reader, writer = await connect(port)
        writer.write(frame(b"wait"))
        await until(lambda: app.served == 1)
        (connection,) = server.connections
        connection.mute(5.0)
        connection.mute(2.0)
        writer.write(frame(b"later"))
        app.waiting[0].resolve([frame(b"now")])
        assert await read_frame(reader) == b"now"
        clock.advance(4.9)
        # It is not idle: it may not say anything.
        server._close_idle()
        assert app.served == 1 and not connection.closed
        clock.advance(0.2)
        assert await read_frame(reader) == b"later"


@on_uvloop
async def test_a_connection_is_muted_in_the_middle_of_pipelined_requests() -> None:
    class Muting(Echo):
        def serve(self, connection: Connection, data: memoryview) -> Answer:
            connection.mute(1.0)
            return super().serve(connection, data)

    clock, app = TimeByHand(), Muting()
    async with serving(app, clock) as (_, port):
        reader, writer = await connect(port)
        writer.write(frame(b"a") + frame(b"b") + frame(b"c"))
        for payload in (b"a", b"b", b"c"):
            assert await read_frame(reader) == payload
            assert app.served == b"abc".index(payload) + 1
            clock.advance(1.01)


@on_uvloop
async def test_idle_connections_are_closed() -> None:
    app = Echo()
    async with serving(app, max_idle_s=0.1) as (server, port):
        reader, _ = await connect(port)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        assert server.counts.expired == 1


@on_uvloop
async def test_receive_memory_is_bounded_and_given_back() -> None:
    """Many half-sent large frames hold no more than the limit; all of them complete in the end."""
    app = Echo()
    limit = 8 << 20
    async with serving(app, memory_bytes=limit) as (server, port):
        big = frame(os.urandom(3 << 20))
        peers = [await connect(port, limit=4 << 20) for _ in range(8)]
        highest = 0

        async def send(peer: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
            peer[1].write(big)
            assert frame(await read_frame(peer[0])) == big

        async def watch() -> None:
            nonlocal highest
            while True:
                highest = max(highest, server.pool.held)
                await asyncio.sleep(0)

        watching = asyncio.create_task(watch())
        await asyncio.gather(*map(send, peers))
        watching.cancel()
        # Beyond the limit: one frame that grows, and what each of the others had received already.
        assert highest <= limit + (4 << 20) + 8 * (256 << 10)
        assert server.pool.held == 0


@on_uvloop
async def test_half_sent_frames_of_one_address_take_no_more_than_its_share() -> None:
    """A hundred connections that each announce 100 MB and send 200 KB: the others still get buffers."""
    app = Echo()
    share, sent = 1 << 20, 200 << 10
    async with serving(app, memory_bytes=8 << 20, memory_bytes_per_ip=share) as (server, port):
        peers = [await connect(port) for _ in range(100)]
        for _, writer in peers:
            writer.write(struct.pack(">i", 90 << 20) + bytes(sent))
        await until(lambda: len(server.pool.first_read) < len(server.pool.scratch))
        highest = 0

        def held() -> int:
            nonlocal highest
            highest = max(highest, server.pool.held)
            return server.pool.held

        await settled(held)
        # Beyond the share: one buffer that grows, and the few bytes with which each other frame began.
        assert highest <= share + (2 << 20) + 100 * (8 << 10) + (128 << 10)
        assert server.pool.take(64 << 10, 64 << 10, None, "another address") is not None


@on_uvloop
async def test_a_frame_that_trickles_in_costs_its_connection() -> None:
    """One byte per second is never idle, and would hold its connection and buffer for ever."""
    app = Echo()
    clock = TimeByHand()
    async with serving(app, clock, frame_timeout_s=30.0, frame_bytes_per_s_min=1000) as (server, port):
        slow, honest = await connect(port), await connect(port)
        slow[1].write(struct.pack(">i", 1 << 20))
        honest[1].write(struct.pack(">i", 60_000) + bytes(30_000))
        # Each in a buffer of its own.
        await until(lambda: len(server.connections) == 2 and server.pool.held >= (4 << 10) + (32 << 10))
        for _ in range(31):
            held = server.pool.held
            slow[1].write(b"x")
            await settled(lambda: server.pool.held)
            clock.advance(1.0)
            assert server.pool.held <= held
        await until(lambda: server.counts.rejected == 1)
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await slow[0].readexactly(1)
        honest[1].write(bytes(30_000))
        assert await read_frame(honest[0]) == bytes(60_000)


@on_uvloop
async def test_a_claimed_length_allocates_nothing() -> None:
    app = Echo()
    async with serving(app) as (server, port):
        _, writer = await connect(port)
        writer.write(struct.pack(">i", 90 << 20) + b"x")
        await until(lambda: server.pool.held > 0)
        assert server.pool.held <= 2 << 20
        writer.close()
        await until(lambda: server.pool.held == 0)


def test_file_ranges_arrive_in_order_with_everything_else(tmp_path: Path) -> None:
    content = os.urandom(5 << 20)
    (tmp_path / "f").write_bytes(content)

    @on_uvloop
    async def check() -> None:
        app = Echo()
        file = OsFiles().open(str(tmp_path / "f"))
        async with serving(app) as (_, port):
            reader, writer = await connect(port, limit=1 << 16)
            for position, size in ((0, len(content)), (17, 100), (4096, 1 << 20)):
                app.file = FileRange(file, position, size)
                writer.write(frame(b"a") + frame(b"file") + frame(b"b") + frame(b"file"))
                for expected in (b"a", content[position : position + size], b"b"):
                    assert await read_frame(reader) == expected
                assert await read_frame(reader) == content[position : position + size]

    check()


@pytest.mark.parametrize("size", [100, 1 << 20])
def test_a_range_that_its_file_does_not_have_costs_the_connection(tmp_path: Path, size: int) -> None:
    (tmp_path / "f").write_bytes(bytes(50))

    @on_uvloop
    async def check() -> None:
        app = Echo()
        app.file = FileRange(OsFiles().open(str(tmp_path / "f")), 0, size)
        async with serving(app) as (_, port):
            reader, writer = await connect(port)
            writer.write(frame(b"file"))
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await read_frame(reader)

    check()


class Copying(Echo):
    """Keeps a copy of every frame that it makes wait, and has it counted."""

    def serve(self, connection: Connection, data: memoryview) -> Answer:
        if bytes(data).startswith(b"wait"):
            self.server.pool.charge(1000)
        return super().serve(connection, data)

    server: Server


@on_uvloop
async def test_a_connection_waits_while_the_copies_of_its_requests_fill_the_memory() -> None:
    app = Copying()
    async with serving(app, memory_bytes=2500) as (server, port):
        app.server = server
        reader, writer = await connect(port)
        writer.write(frame(b"wait") * 10)
        await until(lambda: app.served == 3)
        for _ in range(20):
            await asyncio.sleep(0)
        assert app.served == 3
        for i in range(10):
            await until(lambda i=i: len(app.waiting) > i)  # type: ignore[misc]
            server.pool.release(1000)
            app.waiting[i].resolve([frame(b"done")])
        assert [await read_frame(reader) for _ in range(10)] == [b"done"] * 10


class Note(asyncio.Transport):
    """A transport that notes what is written, with its own name, among all that is."""

    def __init__(self, name: str, written: list[tuple[str, bytes]]) -> None:
        super().__init__()
        self._name, self._written = name, written

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written.append((self._name, bytes(data)))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """A list takes everything."""

    def abort(self) -> None:
        """Ignored."""


class Awaited(Echo):
    """Frames that say so answer the waiting requests."""

    server: Server

    def serve(self, connection: Connection, data: memoryview) -> Answer:
        if bytes(data) == b"wake":
            self.server.call_soon(self.wake)
        return super().serve(connection, data)

    def wake(self) -> None:
        while self.waiting:
            self.waiting.pop().resolve([frame(b"woken after %d" % self.served)])
        if not self.served % 2:
            raise RuntimeError("of those that were woken")


def arrive(connection: Connection, data: bytes) -> None:
    room = connection.get_buffer(-1)
    room[: len(data)] = data
    connection.buffer_updated(len(data))


@on_uvloop
async def test_a_waiting_fetch_is_answered_before_the_producer() -> None:
    app, written = Awaited(), list[tuple[str, bytes]]()
    errors: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    async with serving(app) as (app.server, _):
        reader, writer = (Connection(app.server, Listener("PLAINTEXT", "", 0)) for _ in range(2))
        reader.connection_made(Note("reader", written))
        writer.connection_made(Note("writer", written))
        arrive(reader, frame(b"wait"))
        arrive(writer, frame(b"wake") + frame(b"more"))
        answers = frame(b"wake") + frame(b"more")
        assert written == [("reader", frame(b"woken after 3")), ("writer", answers)]
        assert not errors
        arrive(writer, frame(b"wake"))
        assert written[2:] == [("writer", frame(b"wake"))], "whatever becomes of the others"
        assert [type(error) for error in errors] == [RuntimeError]
        for connection in (reader, writer):
            connection.connection_lost(None)


@on_uvloop
async def test_a_fetch_woken_between_reads_is_answered_in_the_next_turn() -> None:
    app, written = Awaited(), list[tuple[str, bytes]]()
    async with serving(app) as (app.server, _):
        reader = Connection(app.server, Listener("PLAINTEXT", "", 0))
        reader.connection_made(Note("reader", written))
        arrive(reader, frame(b"wait"))
        app.server.call_soon(app.wake)
        assert not written
        await asyncio.sleep(0)
        assert written == [("reader", frame(b"woken after 1"))]
        reader.connection_lost(None)


def accepted(server: Server, option: int) -> int:
    """A socket option of the one connection."""
    (connection,) = server.connections
    with socket.socket(fileno=os.dup(connection.descriptor)) as inspected:
        return inspected.getsockopt(socket.SOL_SOCKET, option)


@on_uvloop
async def test_the_buffers_of_accepted_sockets_have_the_configured_sizes() -> None:
    for size in (-1, 32 << 10):
        async with serving(Echo(), send_buffer_bytes=size, receive_buffer_bytes=size) as (server, port):
            reader, writer = await connect(port)
            writer.write(frame(b"hello"))
            assert await read_frame(reader) == b"hello"
            assert accepted(server, socket.SO_KEEPALIVE) == 1
            # Linux reports twice the size, for its own bookkeeping.
            sizes = {accepted(server, option) for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)}
            assert sizes == {2 * size} if size > 0 else 2 * (32 << 10) not in sizes


@on_uvloop
async def test_servers_share_a_port_beside_their_own() -> None:
    """SO_REUSEPORT: a connection to the shared port reaches a server that runs."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        probe.bind(("127.0.0.1", 0))
        shared = probe.getsockname()[1]
        servers = [Server(Limits(), lambda *args, **kwargs: None) for _ in range(2)]
        listeners = [Listener("PLAINTEXT", "127.0.0.1", 0) for _ in servers]
        for server, listener in zip(servers, listeners, strict=True):
            await server.bind([listener], shared)
            await server.serve(Echo())
    assert len({shared, *(listener.port for listener in listeners)}) == 3
    assert [listener.advertised_port for listener in listeners] == [listener.port for listener in listeners]
    await servers[0].stop()
    for port in (shared, listeners[1].port):
        reader, writer = await connect(port)
        writer.write(frame(b"hello"))
        assert await read_frame(reader) == b"hello"
        writer.close()
    await servers[1].stop()
