"""Goes through the segments of a part of a partition, chunk by chunk.

A chunk is what one request gets (`remote.chunks`): whole batches of a few MiB, whose blocks are compared with
their checksums. Segments whose records are all earlier than the wanted time are not read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from penstock.archive.documents import Manifest, Page, PageEntry, SegmentEntry
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.lookup import entry_at, place_of
from penstock.ports import Buffer, ObjectStore
from penstock.records.batch import HEADER_SIZE, MAGIC, read_header
from penstock.records.checksum import crc32c
from penstock.records.committed import PlacedBatch
from penstock.remote.chunks import ChunkRange, SegmentMap, unresolved
from penstock.remote.mounted_source import MountedSource
from penstock.remote.source import ArchiveSource
from penstock.scan.parts import Part, decided
from penstock.storage.transactions import AbortedTransaction

__all__ = ["Chunk", "InlineWorkers", "PartitionScan", "Placed", "source_of"]

T = TypeVar("T")
#: maps that are kept: a transaction that is open for long has its marker many segments further on
_MAPS_MAX: Final = 64
_PAGES_MAX: Final = 4


class InlineWorkers:
    """Runs work on the thread that submits it: no event loop waits for the thread of a scan."""

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)

    async def in_process(self, function: Callable[..., T], *args: Any) -> T:
        return function(*args)

    def close(self) -> None:
        """There is nothing to close."""


class Placed(NamedTuple):
    """A range of an object."""

    name: str
    start: int
    end: int


class Chunk(NamedTuple):
    """Whole batches, one behind the other, and the transactions that readers may not see of them."""

    segment: SegmentMap
    range: ChunkRange
    #: None for readers of uncommitted records
    hidden: tuple[AbortedTransaction, ...] | None


def source_of(store: ObjectStore, part: Part, manifest: Manifest) -> ArchiveSource:
    """The segments as they were written, or as a cut has decided about their transactions."""

    async def known() -> Manifest:
        return manifest

    if part.cut is None:
        return ArchiveSource(store, known, InlineWorkers())
    return MountedSource(store, known, InlineWorkers(), part.cut, 0)


@dataclass(slots=True)
class PartitionScan:
    """The chunks of one part, in the order of their offsets."""

    source: ArchiveSource
    manifest: Manifest
    part: Part
    committed: bool
    #: records before it, in milliseconds, are not wanted
    since_ms: int = 0
    _maps: OrderedDict[str, SegmentMap] = field(default_factory=OrderedDict)
    _pages: OrderedDict[str, Page] = field(default_factory=OrderedDict)

    async def chunks(self) -> AsyncIterator[Chunk]:
        at = self.part.first
        while at < self.part.stop and (entry := await self._entry(at)) is not None:
            if entry.log_size and entry.max_timestamp >= self.since_ms:
                async for chunk in self._of_segment(entry, at):
                    yield chunk
            at = entry.next_offset
        if at < self.part.stop:
            raise ArchiveDamaged(f"the archive of {self.manifest.owner} has no offset {at}")

    def placed(self, chunk: Chunk) -> Placed:
        """The whole blocks of an object that have a chunk."""
        return Placed(
            self.manifest.owner.object(chunk.segment.entry.name), *chunk.segment.blocks_of(chunk.range)
        )

    def batches(self, chunk: Chunk, data: Buffer) -> Iterator[PlacedBatch]:
        """The batches of a chunk in the blocks that `placed` names, one after the other.

        Each block is compared with its checksum right before its first batch, so that the decoder finds it in
        the processor's cache. ArchiveDamaged for one that does not pass.
        """
        segment, wanted = chunk.segment, chunk.range
        name, start, end = self.placed(chunk)
        view, size, blocks = memoryview(data), segment.block_size, segment.blocks
        position, stop, verified = wanted.start - start, wanted.end - start, 0
        if len(view) != end - start:
            raise ArchiveDamaged(f"{name} has {len(view)} bytes where {end - start} were read")
        number = start // size
        while position < stop:
            needed = position + HEADER_SIZE
            while True:
                while verified < min(needed, len(view)):
                    block = view[verified : verified + size]
                    if crc32c(block) != int.from_bytes(blocks[4 * number : 4 * number + 4], "big"):
                        raise ArchiveDamaged(f"{name} is damaged between bytes {start + verified} and {end}")
                    verified, number = verified + len(block), number + 1
                if needed > stop:
                    raise ArchiveDamaged(f"{name} has a batch that is cut off at byte {start + position}")
                header = read_header(view, position)
                if needed >= position + header.size:
                    break
                needed = position + header.size
            if header.magic != MAGIC or header.size < HEADER_SIZE:
                raise ArchiveDamaged(f"{name} has no batch at byte {start + position}")
            yield position, header
            position += header.size

    async def _of_segment(self, entry: SegmentEntry, at: int) -> AsyncIterator[Chunk]:
        segment = await self._map(entry)
        hidden = await self._hidden(segment) if self.committed else None
        last = min(self.part.stop, entry.next_offset) - 1 - entry.base_offset
        for number in range(next(segment.candidates(at)), segment.count):
            wanted = segment.chunk(number)
            yield Chunk(segment, wanted, hidden)
            if wanted.ends[-1] >= last:
                return

    async def _hidden(self, segment: SegmentMap) -> tuple[AbortedTransaction, ...]:
        """A transaction that is open at the end of a segment has its marker in one of the following ones."""
        found, pending, at = list(segment.aborted), list(segment.open), segment.entry.next_offset
        while pending and (following := await self._entry(at)) is not None:
            pending = unresolved(pending, await self._map(following), found)
            at = following.next_offset
        return decided(found, pending, self.part.cut)

    async def _map(self, entry: SegmentEntry) -> SegmentMap:
        found = self._maps.get(entry.name)
        if found is None:
            found = self._maps[entry.name] = await self.source.map_of(self.manifest, entry)
            if len(self._maps) > _MAPS_MAX:
                self._maps.popitem(last=False)
        return found

    async def _entry(self, offset: int) -> SegmentEntry | None:
        place = place_of(self.manifest, offset)
        if not isinstance(place, PageEntry):
            return place
        page = self._pages.get(place.name)
        if page is None:
            page = self._pages[place.name] = await self.source.page(self.manifest, place)
            if len(self._pages) > _PAGES_MAX:
                self._pages.popitem(last=False)
        return entry_at(page.segments, offset)
