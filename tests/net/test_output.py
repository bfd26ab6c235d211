"""The sending half: what a peer that does not read may cost, and what counts as idle."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from typing import cast

from penstock.broker.base.system_ports import OsFiles
from penstock.net.connection import Connection
from penstock.net.output import HIGH_WATER
from penstock.net.response_queue import Answer
from penstock.ports import File, FileRange
from penstock.storage.memory import MemoryFiles
from tests.net.echo import Echo, connect, frame, on_uvloop, read_frame, serving, until
from tests.net.time_by_hand import TimeByHand

SIZE = 18 << 20
#: what the kernel may take off our hands for a peer that does not read, generously
KERNEL = 8 << 20


class Counting:
    """A file that counts what is read from it into memory."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.read = 0

    def fileno(self) -> int:
        return self.file.fileno()

    def pread(self, size: int, position: int) -> bytes:
        self.read += size
        return self.file.pread(size, position)


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
            await asyncio.sleep(0.2)
            assert file.read <= KERNEL + HIGH_WATER
            assert app.served < 3
            writer.transport.resume_reading()  # type: ignore[attr-defined]
            for _ in range(3):
                assert len(await read_frame(reader)) == SIZE

    check()


def test_a_range_waits_for_what_the_transport_has_not_sent(tmp_path: Path) -> None:
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
            await asyncio.sleep(0.2)
            assert file.read == 0
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
