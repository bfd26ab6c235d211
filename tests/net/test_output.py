"""The sending half: what a peer that does not read may cost, and what counts as idle."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import cast

import pytest

from penstock.broker.base.system_ports import OsFiles
from penstock.net.connection import Connection
from penstock.net.output import HIGH_WATER, Output
from penstock.net.response_queue import Answer
from penstock.ports import File, FileRange
from penstock.storage.memory import MemoryFiles
from tests.net.echo import Echo, connect, frame, on_uvloop, read_frame, serving, settled, until
from tests.net.time_by_hand import TimeByHand

SIZE = 18 << 20
#: what the kernel may take off our hands for a peer that does not read, generously
KERNEL = 8 << 20
_PIECE, _PIECES = 256 << 10, 80


class Counting:
    """A file that counts what is read from it into memory."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.read = 0
        #: bytes that were read since the last turn of the loop, and the most of any turn
        self.turn = self.turn_max = 0

    def fileno(self) -> int:
        return self.file.fileno()

    def pread_verified(self, size: int, position: int) -> bytes:
        self.read += size
        if not self.turn:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self.turn += size
        self.turn_max = max(self.turn_max, self.turn)
        return self.file.pread_verified(size, position)

    def _next_turn(self) -> None:
        self.turn = 0


class Serving(Echo):
    """Answers "file" with a large range, after a few bytes through the transport."""

    def __init__(self, file: Counting) -> None:
        super().__init__()
        self.counting = file

    def serve(self, connection: Connection, data: memoryview) -> Answer:
        if bytes(data) != b"file":
            return super().serve(connection, data)
        self.served += 1
        return [struct.pack(">i", SIZE), FileRange(cast(File, self.counting), 0, SIZE)]


def memory_file() -> Counting:
    files = MemoryFiles()
    file = files.open("/f", create=True)
    file.append(bytes(SIZE))
    return Counting(file)


def disk_file(folder: Path) -> Counting:
    path = folder / "f"
    path.write_bytes(bytes(SIZE))
    return Counting(OsFiles().open(str(path)))


def test_a_file_in_memory_is_copied_as_the_peer_reads_it() -> None:
    @on_uvloop
    async def check() -> None:
        file = memory_file()
        app = Serving(file)
        async with serving(app) as (_, port):
            reader, writer = await connect(port)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(frame(b"file") * 60)
            await until(lambda: app.served > 0)
            await settled(lambda: file.read)
            assert file.read <= KERNEL + HIGH_WATER
            assert app.served < 3
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(3):
                assert len(await read_frame(reader)) == SIZE

    check()


@pytest.mark.parametrize("has_socket", [True, False])
def test_a_turn_of_the_loop_copies_one_piece(has_socket: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece of an encrypted file takes milliseconds, and a fast peer takes all that it is given."""
    if not has_socket:
        monkeypatch.setattr(Output, "_duplicate", lambda self: None)

    @on_uvloop
    async def check() -> None:
        file = memory_file()
        async with serving(Serving(file)) as (_, port):
            reader, writer = await connect(port)
            writer.write(frame(b"file") + frame(b"end"))
            assert len(await read_frame(reader)) == SIZE
            assert await read_frame(reader) == b"end"
        assert file.turn_max <= 256 << 10

    check()


class Piecewise(Echo):
    """Answers "pieces" with a large response in pieces."""

    def serve(self, connection: Connection, data: memoryview) -> Answer:
        if bytes(data) != b"pieces":
            return super().serve(connection, data)
        self.connection = connection
        pieces = [bytes([number]) * _PIECE for number in range(_PIECES)]
        return [struct.pack(">i", _PIECE * _PIECES), *pieces]


@pytest.mark.parametrize("has_socket", [True, False])
def test_a_large_response_is_sent_piece_by_piece(has_socket: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was joined and handed to the transport at once, half a millisecond for each megabyte."""
    if not has_socket:
        monkeypatch.setattr(Output, "_duplicate", lambda self: None)

    @on_uvloop
    async def check() -> None:
        app = Piecewise()
        async with serving(app) as (_, port):
            reader, writer = await connect(port)
            writer.write(frame(b"pieces") + frame(b"end"))
            await until(lambda: app.served > 0 or hasattr(app, "connection"))
            assert app.connection._output._transport.get_write_buffer_size() <= HIGH_WATER + _PIECE
            received = await read_frame(reader)
            assert received == b"".join(bytes([number]) * _PIECE for number in range(_PIECES))
            assert await read_frame(reader) == b"end"

    check()


def test_a_peer_that_takes_little_at_a_time_does_not_have_it_read_again() -> None:
    @on_uvloop
    async def check() -> None:
        file = memory_file()
        async with serving(Serving(file)) as (_, port):
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            sock.connect(("127.0.0.1", port))
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(sock, frame(b"file"))
            received = 0
            while received < SIZE + 4:
                piece = await loop.sock_recv(sock, 16 << 10)
                assert piece
                received += len(piece)
            sock.close()
        assert file.read == SIZE

    check()


def test_a_range_waits_for_unsent_bytes_of_the_transport(tmp_path: Path) -> None:
    @on_uvloop
    async def check() -> None:
        file = disk_file(tmp_path)
        app = Serving(file)
        async with serving(app) as (_, port):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setblocking(False)
            loop = asyncio.get_running_loop()
            small = frame(b"x" * 15_000)
            requests = small * 700 + frame(b"file") * 20 + frame(b"end")
            sending = loop.create_task(loop.sock_sendall(sock, requests))
            assert await settled(lambda: file.read) == 0
            received = 0
            expected = len(small) * 700 + 20 * (SIZE + 4) + len(frame(b"end"))
            tail = b""
            while received < expected:
                piece = await loop.sock_recv(sock, 1 << 20)
                assert piece
                received += len(piece)
                tail = (tail + piece)[-7:]
            await sending
            assert tail == frame(b"end")
            assert file.read == 0
            sock.close()

    check()


def test_a_peer_that_takes_its_time_with_an_answer_is_not_idle(tmp_path: Path) -> None:
    @on_uvloop
    async def check() -> None:
        app = Serving(disk_file(tmp_path))
        clock, idle_s, passed_s = TimeByHand(), 10.0, 0.0
        async with serving(app, clock, max_idle_s=idle_s) as (server, port):
            reader, writer = await connect(port)
            writer.write(frame(b"file"))
            received = 0
            await until(lambda: app.served > 0)
            (connection,) = server.connections
            # What the kernel holds at the end is out of the broker's sight: stop before that.
            while received < SIZE - KERNEL:
                received += len(await reader.readexactly(256 << 10))
                if connection.idle_since() == clock.time():  # It was sent more since time last passed.
                    clock.advance(0.8 * idle_s)
                    passed_s += 0.8 * idle_s
            assert passed_s > 2 * idle_s
            assert server.counts.expired == 0

    check()
