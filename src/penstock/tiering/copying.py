"""One turn of copying a partition: segments are put, verified, and then named by the next manifest.

A turn begins with the newest manifest of the archive and keeps nothing from the turn before. So a turn that
fails anywhere, or whose process ends, is followed by one that is right. What it has put without a name is
found by the collector.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from penstock.archive.age import Age
from penstock.archive.chain import ManifestChain
from penstock.archive.documents import Manifest, SegmentEntry
from penstock.archive.errors import WriterDeposed
from penstock.archive.manifests import appended, trimmed
from penstock.archive.names import TIER, ArchivedPartition
from penstock.ports import Clock, ObjectStore, Rng, Workers
from penstock.remote.source import read_tail
from penstock.tiering.building import OBJECT_BYTES
from penstock.tiering.comparison import same_end
from penstock.tiering.errors import LogDiverged
from penstock.tiering.progress import Copied
from penstock.tiering.selection import (
    LocalSegment,
    LocalView,
    check_continues,
    check_not_released,
    pending_segments,
)
from penstock.tiering.turn_objects import OwnTurnObjects, SegmentBytes, TurnObjects

__all__ = ["Archive", "CopyTurn", "LocalSource", "release"]

#: objects of one turn: their manifest is written at its end
_OBJECTS_MAX: Final = 16
#: how long a turn goes on putting objects, so that the first one has its name soon
_TURN_S: Final = 600.0


class LocalSource(SegmentBytes, Protocol):
    """The log of a partition that this broker leads."""

    def view(self, since: int) -> LocalView | None:
        """The log now, with the segments that reach beyond `since`.

        None if the broker does not lead in this leader epoch any more, or the topic is not to be copied.
        """
        ...

    async def position(self, segment: LocalSegment, offset: int) -> int:
        """The position of the batch that has `offset`."""
        ...

    async def bytes_before(self, offset: int, size: int) -> bytes | None:
        """As `tiering.comparison.OwnBytes`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """The archive, and the ports of a copy. `pace` waits until so many bytes may be sent."""

    store: ObjectStore
    archive_id: str
    clock: Clock
    rng: Rng
    workers: Workers
    pace: Callable[[int], Awaitable[None]]
    #: called with the size of each object that was put and verified
    put: Callable[[int], None]
    object_bytes: int = OBJECT_BYTES

    def chain(self, owner: ArchivedPartition) -> ManifestChain:
        return ManifestChain(self.store, self.archive_id, owner, TIER, self.rng, self.clock)


class CopyTurn:
    """Copies a partition in one leader epoch, up to `_OBJECTS_MAX` objects."""

    def __init__(
        self,
        archive: Archive,
        source: LocalSource,
        owner: ArchivedPartition,
        leader_epoch: int,
        objects: TurnObjects | None = None,
    ) -> None:
        """`objects` are made in this process unless they are given."""
        self._archive = archive
        self._objects: TurnObjects = objects or OwnTurnObjects(
            archive.store, archive.workers, owner, source, archive.object_bytes
        )
        self._source = source
        self._owner = owner
        self._leader_epoch = leader_epoch
        self._chain = archive.chain(owner)
        self._age = Age(archive.clock)

    async def run(self) -> Copied | None:
        """Copy what is there; None if the broker may not copy any more.

        WriterDeposed if another leader has continued the chain; LocalLogRefused, ArchiveError or OSError if
        the turn has failed.
        """
        newest = await self._load()
        # After the manifest was read: the archive is never ahead of a leader that is not deposed.
        since = -1 if newest is None else newest.next_offset
        view = self._source.view(since)
        if view is None:
            return None
        known = newest or self._chain.first(view.log_start_offset, self._leader_epoch, compacted=False)
        check_not_released(view, known)
        edited = trimmed(known, view.log_start_offset)
        check_continues(view, edited)
        try:
            entries = await self._copy(edited)
        finally:
            await self._objects.end()
        if entries is None:
            return None
        missing = any(entry.missing for entry in entries)
        edited = appended(edited, entries)
        if missing:
            edited = msgspec.structs.replace(edited, compacted=True)
        if (edited.pages, edited.segments) != (known.pages, known.segments):
            self._age.check(self._owner)
            edited = await self._chain.advance(edited, self._leader_epoch)
        return _copied(edited)

    async def _load(self) -> Manifest | None:
        newest = await self._chain.load()
        if newest is not None and newest.leader_epoch > self._leader_epoch:
            raise WriterDeposed(
                f"{self._owner} has leader epoch {newest.leader_epoch} in its manifest, this is "
                f"{self._leader_epoch}"
            )
        return newest

    async def _copy(self, edited: Manifest) -> list[SegmentEntry] | None:
        """Put objects behind `edited`; None if the broker may not copy any more."""
        entries: list[SegmentEntry] = []
        offset = edited.next_offset
        while len(entries) < _OBJECTS_MAX and self._age.elapsed_s() < _TURN_S:
            view = self._source.view(offset)
            if view is None:
                return None
            pending = pending_segments(view, offset)
            if not pending:
                break
            if not entries:
                offset = await self._begin(edited, pending[0])
            entry = await self._copy_object(offset, pending)
            entries.append(entry)
            offset = entry.next_offset
        return entries

    async def _begin(self, edited: Manifest, first: LocalSegment) -> int:
        """Start the objects where the archive ends; returns the offset of the first one."""
        if not edited.segments:
            await self._objects.begin(first.base_offset, None, None)
            return first.base_offset
        last = edited.segments[-1]
        tail = await read_tail(self._archive.store, last, self._owner)
        if await same_end(self._archive.store, tail, last, self._owner, self._source.bytes_before) is False:
            raise LogDiverged(
                f"the archive of {self._owner} has other records than the log before offset "
                f"{last.next_offset}: the log was rolled back, or another cluster writes to the archive"
            )
        await self._objects.begin(last.next_offset, last, tail)
        return last.next_offset

    async def _copy_object(self, offset: int, pending: list[LocalSegment]) -> SegmentEntry:
        """Put an object that begins at `offset`."""
        archive, first = self._archive, pending[0]
        position = await self._source.position(first, offset) if offset > first.base_offset else 0
        now_ms, random = archive.clock.now_ms(), archive.rng.token(8)
        segments = _enough(pending, position + archive.object_bytes)
        entry = await self._objects.build(segments, position, self._leader_epoch, random, now_ms)
        await archive.pace(entry.size)
        await self._objects.put()
        archive.put(entry.size)
        return entry


def _enough(pending: list[LocalSegment], size: int) -> list[LocalSegment]:
    """The first segments, with `size` bytes together if there are as many."""
    found = []
    for segment in pending:
        found.append(segment)
        size -= segment.size
        if size <= 0:
            break
    return found


async def release(archive: Archive, owner: ArchivedPartition, leader_epoch: int) -> bool:
    """Name no segment of a partition any more, so that the collector deletes them.

    Returns false if none was named.
    """
    chain = archive.chain(owner)
    newest = await chain.load()
    if newest is None or not (newest.pages or newest.segments):
        return False
    await chain.advance(trimmed(newest, newest.next_offset), leader_epoch)
    return True


def _copied(manifest: Manifest) -> Copied:
    if not (manifest.pages or manifest.segments):
        return Copied(None, manifest.next_offset, None)
    first_end = manifest.pages[0].next_offset if manifest.pages else manifest.segments[0].next_offset
    return Copied(manifest.next_offset, manifest.next_offset, first_end, manifest.log_size)
