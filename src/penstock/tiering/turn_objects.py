"""Builds the objects of one turn, one after the other, and puts and verifies each.

`OwnTurnObjects` does so in this process. A broker has them made in another process, which costs its own
process and its event loop next to nothing (`broker.app.copy_process`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from penstock.archive.building import LogState, Sealed
from penstock.archive.documents import SegmentEntry
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.names import ArchivedPartition
from penstock.archive.objects import put_certain
from penstock.ports import Buffer, ObjectStore, Workers
from penstock.remote.source import Tail, log_state, read_buffer
from penstock.tiering.building import ObjectBuilder, batch_bytes
from penstock.tiering.errors import LogIncomplete
from penstock.tiering.selection import LocalSegment

__all__ = ["VERIFIED_BYTES", "OwnTurnObjects", "SegmentBytes", "TurnObjects"]

_PIECE_BYTES: Final = 1 << 20
#: of one read when an object is verified
VERIFIED_BYTES: Final = 4 << 20


class SegmentBytes(Protocol):
    """The sealed segments of a log."""

    async def read(self, segment: LocalSegment, position: int, size: int) -> bytes: ...

    async def is_compacted(self, segment: LocalSegment) -> bool:
        """Whether compaction may have removed offsets."""
        ...


class TurnObjects(Protocol):
    """Makes the objects of one turn."""

    async def begin(self, base_offset: int, last: SegmentEntry | None, tail: Tail | None) -> None:
        """Go on behind `last`, whose end is `tail`; without it, a new archive begins at `base_offset`."""
        ...

    async def build(
        self,
        segments: Sequence[LocalSegment],
        position: int,
        leader_epoch: int,
        random: bytes,
        now_ms: int,
    ) -> SegmentEntry:
        """Build the next object, from `position` in the first segment on. LocalLogRefused or ArchiveError."""
        ...

    async def put(self) -> None:
        """Put the object that was built; ArchiveDamaged unless the store returns the bytes that were put."""
        ...

    async def end(self) -> None: ...


class OwnTurnObjects:
    """The objects of a turn, made by worker threads of this process."""

    def __init__(
        self,
        store: ObjectStore,
        workers: Workers,
        owner: ArchivedPartition,
        source: SegmentBytes,
        object_bytes: int,
    ) -> None:
        self._store = store
        self._workers = workers
        self._owner = owner
        self._source = source
        self._object_bytes = object_bytes
        self._state = LogState(0)
        self._sealed: Sealed | None = None

    async def begin(self, base_offset: int, last: SegmentEntry | None, tail: Tail | None) -> None:
        if last is None or tail is None:
            self._state = LogState(base_offset)
        else:
            self._state = await self._workers.in_thread(log_state, tail, last, self._owner)

    async def build(
        self,
        segments: Sequence[LocalSegment],
        position: int,
        leader_epoch: int,
        random: bytes,
        now_ms: int,
    ) -> SegmentEntry:
        builder = ObjectBuilder(self._owner, self._state, self._object_bytes)
        for segment in segments:
            await self._take(builder, segment, position)
            position = 0
            if builder.is_full:
                break
        sealed = await self._workers.in_thread(builder.seal, leader_epoch, random, now_ms)
        self._sealed = sealed
        return sealed.entry

    async def put(self) -> None:
        assert self._sealed is not None
        entry, data = self._sealed
        self._sealed = None
        name = self._owner.object(entry.name)
        await put_certain(self._store, name, data)
        await self._verify(name, data)

    async def end(self) -> None:
        self._sealed = None

    async def _take(self, builder: ObjectBuilder, segment: LocalSegment, position: int) -> None:
        """Append a segment from `position` on, or the part of it that fits."""
        source, missing, wanted = self._source, builder.missing, _PIECE_BYTES
        name = f"{self._owner} at {segment.base_offset}"
        while position < segment.size and not builder.is_full:
            size = min(wanted, segment.size - position)
            data = await source.read(segment, position, size)
            if len(data) != size:
                raise LogIncomplete(f"{name} has {position + len(data)} of {segment.size} bytes")
            taken = await self._workers.in_thread(builder.take, data, name)
            position, wanted = position + taken, _PIECE_BYTES
            if not taken and not builder.is_full:
                wanted = batch_bytes(data)
                if not size < wanted <= segment.size - position:
                    raise ArchiveDamaged(f"{name} has no whole batch at byte {position}")
        if not builder.is_full:
            builder.cover(segment.next_offset)
        if builder.missing > missing and not await source.is_compacted(segment):
            raise LogIncomplete(f"{name} lacks {builder.missing - missing} offsets")

    async def _verify(self, name: str, put: bytearray) -> None:
        """Read an object back; ArchiveDamaged unless the store has the bytes that were put.

        They are compared, as they are still in memory: another SHA-256 would take most of the time of a copy.
        """
        for start in range(0, len(put), VERIFIED_BYTES):
            end = min(start + VERIFIED_BYTES, len(put))
            found = await read_buffer(self._store, name, start, end)
            if not await self._workers.in_thread(_same, found, put, start):
                raise ArchiveDamaged(f"{name} was put, and the store returns other bytes")


def _same(found: Buffer, put: bytearray, start: int) -> bool:
    """Compare without a copy."""
    return put.startswith(found, start)
