"""The process that `copy_process` starts: makes the objects of turns, by requests on its standard input."""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import Any, BinaryIO, Final, TypeVar

from penstock.archive.objects import read_root
from penstock.broker.app.copy_process import FRAME, OTHER_VERSION, CopySettings, TurnPlace
from penstock.model.errors import PenstockError, StorageError
from penstock.objectstore.encrypted_store import with_keys
from penstock.objectstore.object_store import open_store
from penstock.ports import Files, ObjectStore
from penstock.storage.segment_files import COMPACTED, LOG, file_name
from penstock.tiering.selection import LocalSegment
from penstock.tiering.turn_objects import OwnTurnObjects
from penstock.version import VERSION

__all__: list[str] = []

T = TypeVar("T")
#: a lower priority than that of the broker, and of its worker processes: nothing waits for a copy
_NICENESS: Final = 15


class _Threads:
    """Implements `ports.Workers` for one process that has no other work."""

    def in_thread(self, function: Callable[..., T], *args: Any) -> Any:
        return asyncio.to_thread(function, *args)

    def in_process(self, function: Callable[..., T], *args: Any) -> Any:
        return asyncio.to_thread(function, *args)

    def close(self) -> None:
        """Threads end with the process."""


class _Segments:
    """Reads the sealed segments in a directory. The file of a segment stays open to its end."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory

    async def read(self, segment: LocalSegment, position: int, size: int) -> bytes:
        return await asyncio.to_thread(self._read, segment, position, size)

    async def is_compacted(self, segment: LocalSegment) -> bool:
        return await asyncio.to_thread(self._files.exists, self._path(segment, COMPACTED))

    def _read(self, segment: LocalSegment, position: int, size: int) -> bytes:
        path = self._path(segment, LOG)
        try:
            file = self._files.open(path)
            try:
                if file.size() != segment.size:
                    raise FileNotFoundError(f"{path} has another size than the segment had")
                return file.pread(size, position)
            finally:
                file.close()
        except FileNotFoundError:
            raise  # removed meanwhile, by retention or compaction
        except OSError as e:
            raise StorageError(f"cannot read {path}: {e}") from e

    def _path(self, segment: LocalSegment, suffix: str) -> str:
        return f"{self._directory}/{file_name(segment.base_offset)}{suffix}"


class _Service:
    """Answers requests, each in a task of its own."""

    def __init__(self, settings: CopySettings, answers: BinaryIO) -> None:
        self._settings = settings
        self._answers = answers
        self._opening = asyncio.Lock()
        self._store: ObjectStore | None = None
        self._archive_id = ""
        self._turns: dict[int, OwnTurnObjects] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, number: int, turn: int, method: str, args: tuple[Any, ...]) -> None:
        if method == "end":
            self._turns.pop(turn, None)
            return
        task = asyncio.get_running_loop().create_task(self._serve(number, turn, method, args))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, number: int, turn: int, method: str, args: tuple[Any, ...]) -> None:
        answer: tuple[int, bool, object]
        try:
            answer = (number, True, await self._call(turn, method, args))
        except (PenstockError, OSError) as e:
            answer = (number, False, _plain(e))
        except Exception as e:  # noqa: BLE001 - raised in the broker
            answer = (number, False, RuntimeError(f"the process that copies has failed: {e!r}"))
        data = pickle.dumps(answer)
        self._answers.write(FRAME.pack(len(data)) + data)
        self._answers.flush()

    async def _call(self, turn: int, method: str, args: tuple[Any, ...]) -> object:
        if method == "begin":
            place, *beginning = args
            objects = self._turns[turn] = await self._objects(place)
            await objects.begin(*beginning)
            return None
        found = self._turns.get(turn)
        if found is None:
            raise ChildProcessError("the process that copies was started again in the middle of a turn")
        if method == "build":
            return await found.build(*args)
        await found.put()
        return None

    async def _objects(self, place: TurnPlace) -> OwnTurnObjects:
        settings = self._settings
        store = await self._store_of(place.archive_id)
        segments = _Segments(settings.files, place.directory)
        return OwnTurnObjects(store, _Threads(), place.owner, segments, settings.object_bytes)

    async def _store_of(self, archive_id: str) -> ObjectStore:
        """The store; a new one for each archive, because encrypted objects are bound to the archive's id."""
        async with self._opening:
            if self._store is None or self._archive_id != archive_id:
                settings = self._settings
                store = with_keys(open_store(settings.address, settings.options), settings.ring)
                root = await read_root(store)
                if root.id != archive_id:
                    raise OSError(f"the archive was exchanged: its id is {root.id}, and was {archive_id}")
                self._store, self._archive_id = store, archive_id
            return self._store


def _plain(error: Exception) -> Exception:
    """The error as it is if it can be sent."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - errors of any type
        return OSError(str(error))
    return error


def _frame(requests: BinaryIO) -> Any:
    """The next message; EOFError after the last one."""
    head = requests.read(FRAME.size)
    if len(head) < FRAME.size:
        raise EOFError
    (size,) = FRAME.unpack(head)
    data = requests.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)


async def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    if _frame(requests) != VERSION:
        sys.exit(OTHER_VERSION)
    settings: CopySettings = _frame(requests)
    service = _Service(settings, answers)
    while True:
        try:
            message = await asyncio.to_thread(_frame, requests)
        except EOFError:
            # The broker has ended: nothing that is put from now on would get a name.
            os._exit(0)
        service.take(*message)


def main() -> None:
    # It takes long to load: with the low priority it would keep the first copy waiting on a busy machine.
    with suppress(ImportError):
        import_module("obstore.store")
    os.nice(_NICENESS)
    # Ctrl-C in a terminal is for the broker, which ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Whatever else writes to standard output must not look like an answer.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    asyncio.run(_serve(sys.stdin.buffer, answers))


if __name__ == "__main__":
    main()
