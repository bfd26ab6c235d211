"""Copies to the archive in a process of their own: hashes, requests and checks cost the broker nothing.

One process serves all copies of a broker. It starts with the first object, has a lower priority than the
broker, and ends after a while without work, with the broker, or when the broker dies: then its input ends. A
turn whose process has ended fails with an OSError, and is tried again as after any failure of the store.

Frames in both directions: the size (4 bytes), and a pickle. Requests have a number, which the answer repeats.
The first two frames have the broker's version, and the settings. A process of another version refuses it.
"""

from __future__ import annotations

import asyncio
import pickle
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from struct import Struct
from typing import Any, Final, NamedTuple

from penstock.archive.documents import SegmentEntry
from penstock.archive.names import ArchivedPartition
from penstock.broker.base.logs import get_logger
from penstock.encryption.keys import KeyRing
from penstock.objectstore.address import StoreAddress
from penstock.ports import Files
from penstock.remote.source import Tail
from penstock.tiering.selection import LocalSegment
from penstock.version import VERSION

__all__ = [
    "FRAME",
    "OTHER_VERSION",
    "VERSION",
    "CopyProcess",
    "CopySettings",
    "ProcessTurnObjects",
    "TurnPlace",
]

log = get_logger("tiering")
FRAME: Final = Struct(">I")
#: the exit code of a process that does not have the broker's version
OTHER_VERSION: Final = 76
_CHILD: Final = "penstock.broker.app.copy_child"
#: how long the process is kept without a turn
_IDLE_S: Final = 60.0


class CopySettings(NamedTuple):
    """What the process needs to know. It goes through a pipe: command lines are visible to other users."""

    address: StoreAddress
    options: Mapping[str, str] | None
    ring: KeyRing | None
    files: Files
    object_bytes: int


class TurnPlace(NamedTuple):
    """What a turn copies: a partition, the directory of its log, and the archive by its id."""

    archive_id: str
    owner: ArchivedPartition
    directory: str


class CopyProcess:
    """The process, while there is one. The event loop's thread owns it."""

    def __init__(self, settings: Callable[[], Awaitable[CopySettings]]) -> None:
        """`settings` are read when the process starts; they may raise ArchiveError or OSError."""
        self._settings = settings
        self._child: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._starting = asyncio.Lock()
        self._numbers = count()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._turns: set[int] = set()
        self._idle_since_s: float | None = None

    def objects(self, archive_id: str, owner: ArchivedPartition, directory: str) -> ProcessTurnObjects:
        """The objects of a turn, of the log in `directory`."""
        return ProcessTurnObjects(self, next(self._numbers), TurnPlace(archive_id, owner, directory))

    @property
    def pid(self) -> int | None:
        return None if self._child is None else self._child.pid

    async def call(self, turn: int, method: str, *args: Any) -> Any:
        """Call a method of the objects of a turn; raises what it raises."""
        child = await self._running()
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            await _send(child, (number, turn, method, args))
            return await answer
        finally:
            self._answers.pop(number, None)

    def begun(self, turn: int) -> None:
        self._turns.add(turn)
        self._idle_since_s = None

    async def ended(self, turn: int) -> None:
        """Forget a turn; the process forgets it, too."""
        self._turns.discard(turn)
        if not self._turns:
            self._idle_since_s = asyncio.get_running_loop().time()
        if self._child is not None:
            try:
                await _send(self._child, (next(self._numbers), turn, "end", ()))
            except OSError:
                return  # it has ended, and knows no turn any more

    async def rest(self) -> None:
        """End the process if there was nothing to copy for a while."""
        idle_since_s = self._idle_since_s
        now_s = asyncio.get_running_loop().time()
        if idle_since_s is not None and not self._turns and now_s - idle_since_s > _IDLE_S:
            await self.stop()

    async def stop(self) -> None:
        child, reading = self._child, self._reading
        if child is not None and reading is not None:
            if child.returncode is None:
                child.kill()  # whatever it puts has no name
            await asyncio.gather(reading, return_exceptions=True)

    async def _running(self) -> asyncio.subprocess.Process:
        async with self._starting:
            if self._child is None:
                settings = await self._settings()
                child = await asyncio.create_subprocess_exec(
                    sys.executable,
                    # Without it, the child would import modules of the working directory.
                    "-P",
                    "-m",
                    _CHILD,
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                )
                self._child = child
                self._reading = asyncio.create_task(self._read(child))
                await _send(child, VERSION)
                await _send(child, settings)
            return self._child

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        """Take answers until the process ends."""
        assert child.stdout is not None
        reason = "was stopped"
        try:
            while True:
                (size,) = FRAME.unpack(await child.stdout.readexactly(FRAME.size))
                number, is_result, value = pickle.loads(await child.stdout.readexactly(size))
                answer = self._answers.get(number)
                if answer is None or answer.done():
                    continue
                if is_result:
                    answer.set_result(value)
                else:
                    answer.set_exception(value)
        except asyncio.IncompleteReadError:
            code = await child.wait()
            reason = f"has ended with {code}"
            if code == OTHER_VERSION:
                reason = f"is not of version {VERSION}, as the broker is: restart the broker"
        except Exception as e:
            # For example of a package that was replaced under the broker. Nothing else takes answers.
            log.error("copy_process_broke", pid=child.pid, exc_info=e)
            reason = f"has sent an answer that cannot be read: {e!r}"
        finally:
            self._child = self._reading = self._idle_since_s = None
            if child.returncode is None:
                child.kill()
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(ChildProcessError(f"the process that copies {reason}"))


class ProcessTurnObjects:
    """Implements `tiering.turn_objects.TurnObjects` in the other process."""

    def __init__(self, process: CopyProcess, turn: int, place: TurnPlace) -> None:
        self._process = process
        self._turn = turn
        self._place = place
        self._is_begun = False

    async def begin(self, base_offset: int, last: SegmentEntry | None, tail: Tail | None) -> None:
        self._is_begun = True
        self._process.begun(self._turn)
        await self._process.call(self._turn, "begin", self._place, base_offset, last, tail)

    async def build(
        self,
        segments: Sequence[LocalSegment],
        position: int,
        leader_epoch: int,
        random: bytes,
        now_ms: int,
    ) -> SegmentEntry:
        entry: SegmentEntry = await self._process.call(
            self._turn, "build", list(segments), position, leader_epoch, random, now_ms
        )
        return entry

    async def put(self) -> None:
        await self._process.call(self._turn, "put")

    async def end(self) -> None:
        if self._is_begun:
            await self._process.ended(self._turn)


async def _send(child: asyncio.subprocess.Process, message: object) -> None:
    assert child.stdin is not None
    data = pickle.dumps(message)
    try:
        child.stdin.write(FRAME.pack(len(data)) + data)
        await child.stdin.drain()
    except RuntimeError as e:
        # What uvloop raises where asyncio has a ConnectionError.
        raise ChildProcessError("the process that copies has ended") from e
