"""The process that copies to the archive."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from penstock.archive.documents import SegmentEntry
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.objects import open_archive
from penstock.broker.app import copy_process
from penstock.broker.app.copy_process import CopyProcess, CopySettings
from penstock.broker.base.system_ports import OsFiles, SystemRng
from penstock.model.errors import StorageError
from penstock.objectstore.address import parse_address
from penstock.objectstore.object_store import LibraryStore, open_store
from penstock.records.batch import HEADER, BatchHeader
from penstock.remote.source import read_tail
from penstock.tiering.selection import LocalSegment
from penstock.tiering.turn_objects import OwnTurnObjects
from tests.archive.logs import OWNER, in_loop, log_of
from tests.storage.compacted import InlineWorkers

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")

RANDOM = bytes(8)
BATCHES = log_of(0, 20, size=100)
END = BatchHeader._make(HEADER.unpack_from(BATCHES[-1])).next_offset


class Archived:
    """A log with one segment in a folder, an archive beside it, and a process that copies."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        self.log.mkdir()
        content = b"".join(BATCHES)
        (self.log / "00000000000000000000.log").write_bytes(content)
        self.segment = LocalSegment(0, END, len(content))
        self.address = parse_address(str(folder / "archive"))
        self.store: LibraryStore = open_store(self.address, create=True)
        self.process = CopyProcess(self._settings)

    async def _settings(self) -> CopySettings:
        return CopySettings(self.address, None, None, OsFiles(), 1500)

    async def open(self) -> str:
        return (await open_archive(self.store, SystemRng(), 0)).id

    async def copied(self, archive_id: str, objects: int) -> list[SegmentEntry]:
        """One turn."""
        turn, entries, position = self.process.objects(archive_id, OWNER, str(self.log)), [], 0
        try:
            await turn.begin(0, None, None)
            for _ in range(objects):
                entry = await turn.build([self.segment], position, 3, RANDOM, 0)
                await turn.put()
                entries.append(entry)
                position += entry.log_size
        finally:
            await turn.end()
        return entries


@asynccontextmanager
async def archived(folder: Path) -> AsyncIterator[tuple[Archived, str]]:
    made = Archived(folder)
    try:
        yield made, await made.open()
    finally:
        await made.process.stop()


class _Memory:
    """The segment for objects that are made here."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    async def read(self, segment: LocalSegment, position: int, size: int) -> bytes:
        return self._content[position : position + size]

    async def is_compacted(self, segment: LocalSegment) -> bool:
        return False


@in_loop
async def test_another_process_makes_the_same_objects(tmp_path: Path) -> None:
    async with archived(tmp_path) as (made, archive_id):
        entries = await made.copied(archive_id, 2)

        own_store = open_store(parse_address(str(tmp_path / "own")), create=True)
        own = OwnTurnObjects(own_store, InlineWorkers(), OWNER, _Memory(b"".join(BATCHES)), 1500)
        await own.begin(0, None, None)
        expected, position = [], 0
        for _ in range(2):
            expected.append(await own.build([made.segment], position, 3, RANDOM, 0))
            await own.put()
            position += expected[-1].log_size

        assert entries == expected
        for entry in entries:
            name = OWNER.object(entry.name)
            assert await made.store.get(name) == await own_store.get(name)


@in_loop
async def test_a_turn_goes_on_behind_the_last_object(tmp_path: Path) -> None:
    async with archived(tmp_path) as (made, archive_id):
        (first,) = await made.copied(archive_id, 1)
        turn = made.process.objects(archive_id, OWNER, str(made.log))
        await turn.begin(first.next_offset, first, await read_tail(made.store, first, OWNER))
        second = await turn.build([made.segment], first.log_size, 3, RANDOM, 0)
        assert second.base_offset == first.next_offset
        await turn.end()


@in_loop
async def test_a_process_that_was_killed_fails_its_turn_and_is_replaced(tmp_path: Path) -> None:
    async with archived(tmp_path) as (made, archive_id):
        turn = made.process.objects(archive_id, OWNER, str(made.log))
        await turn.begin(0, None, None)
        killed = made.process.pid
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        with pytest.raises(OSError, match="the process that copies"):
            while True:
                await turn.build([made.segment], 0, 3, RANDOM, 0)
        await turn.end()

        assert len(await made.copied(archive_id, 2)) == 2
        assert made.process.pid not in (None, killed)


@in_loop
async def test_a_process_whose_answers_cannot_be_read_fails_its_calls_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange_child.py").write_text(
        "import sys\n"
        "sys.stdout.buffer.write((4).to_bytes(4) + b'????')\n"
        "sys.stdout.flush()\n"
        "sys.stdin.read()\n"
    )
    async with archived(tmp_path) as (made, archive_id):
        with monkeypatch.context() as patched:
            patched.setenv("PYTHONPATH", str(tmp_path))
            patched.setattr(copy_process, "_CHILD", "strange_child")
            with pytest.raises(ChildProcessError, match="an answer that cannot be read"):
                await asyncio.wait_for(made.copied(archive_id, 1), 60)
        assert made.process.pid is None

        assert len(await made.copied(archive_id, 1)) == 1


@in_loop
async def test_a_process_of_another_version_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy_process, "VERSION", "0.0.1")
    async with archived(tmp_path) as (made, archive_id):
        with pytest.raises(ChildProcessError, match=r"is not of version 0\.0\.1, as the broker is: restart"):
            await asyncio.wait_for(made.copied(archive_id, 1), 60)


@in_loop
async def test_a_pipe_that_uvloop_has_closed_fails_the_turn_and_not_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(writer: asyncio.StreamWriter, data: bytes) -> None:
        raise RuntimeError("unable to perform operation on a transport; the handler is closed")

    async with archived(tmp_path) as (made, archive_id):
        turn = made.process.objects(archive_id, OWNER, str(made.log))
        await turn.begin(0, None, None)
        monkeypatch.setattr(asyncio.StreamWriter, "write", refuse)
        with pytest.raises(ChildProcessError, match="the process that copies has ended"):
            await turn.build([made.segment], 0, 3, RANDOM, 0)
        await turn.end()


@in_loop
async def test_errors_arrive_as_they_were_raised(tmp_path: Path) -> None:
    async with archived(tmp_path) as (made, archive_id):
        path = made.log / "00000000000000000000.log"
        content = bytearray(path.read_bytes())
        content[100] ^= 1
        path.write_bytes(content)
        with pytest.raises(ArchiveDamaged, match="damaged batch at offset 0"):
            await made.copied(archive_id, 1)
        path.write_bytes(content[:-1])
        with pytest.raises(FileNotFoundError, match="another size"):
            await made.copied(archive_id, 1)
        path.unlink()
        path.mkdir()
        with pytest.raises(StorageError, match="cannot read"):
            await made.copied(archive_id, 1)


@in_loop
async def test_another_archive_at_the_address_is_refused(tmp_path: Path) -> None:
    """Encrypted objects are bound to the id: those of a process that knows an old one could not be read."""
    async with archived(tmp_path) as (made, archive_id):
        await made.copied(archive_id, 1)
        with pytest.raises(OSError, match="the archive was exchanged"):
            await made.copied("another", 1)
        await made.store.delete("archive.json")
        archive_id = await made.open()
        (entry,) = await made.copied(archive_id, 1)
        assert entry.base_offset == 0


@in_loop
async def test_the_process_ends_after_a_while_without_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with archived(tmp_path) as (made, archive_id):
        await made.copied(archive_id, 1)
        await made.process.rest()
        while_idle = made.process.pid
        monkeypatch.setattr(copy_process, "_IDLE_S", -1.0)
        await made.process.rest()
        assert (while_idle is not None, made.process.pid) == (True, None)


@in_loop
async def test_a_process_that_cannot_use_the_store_tells_why(tmp_path: Path) -> None:
    async with archived(tmp_path) as (made, archive_id):
        (tmp_path / "archive" / "archive.json").unlink()
        with pytest.raises(Exception, match="there is no archive"):
            await asyncio.wait_for(made.copied(archive_id, 1), 60)
