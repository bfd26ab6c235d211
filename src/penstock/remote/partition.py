"""The archived part of one log: a `RemoteTier` over an archive and the cache of its chunks.

A method that needs something that is not in memory or in the cache raises ColdRemote with the load that gets
it. So a read goes forward load by load: the manifest, a page of it, the map of a segment, a chunk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.archive.documents import Manifest, Page, PageEntry, SegmentEntry
from penstock.archive.errors import ArchiveDamaged, ArchiveError
from penstock.archive.lookup import entry_at, place_of
from penstock.archive.segment_object import check_blocks
from penstock.model.errors import RemoteReadFailed
from penstock.ports import Buffer, Clock, File, FileRange, Workers
from penstock.remote.cache import Chunk, ChunkFiles, last_offset_of
from penstock.remote.chunks import ChunkRange, OpenTransaction, SegmentMap, unresolved
from penstock.remote.loading import Failures, Loader
from penstock.remote.read_ahead import ReadAhead
from penstock.remote.residency import Residency
from penstock.remote.source import RemoteSource, read_buffer
from penstock.remote.stats import RemoteStats
from penstock.remote.timestamps import dated_batch
from penstock.storage.config import FOREVER
from penstock.storage.lookup import DatedBatch
from penstock.storage.scan import ColdPages, ColdRemote, CorruptLog
from penstock.storage.transactions import AbortedTransaction

__all__ = ["RemoteCache", "RemotePartition"]

#: bytes of manifests, maps and pages in memory, and answers to lookups by timestamp
_DOCUMENT_BYTES: Final = 64 << 20
_ANSWERS: Final = 256
#: open files of the cache: small chunks count as more than they have
_FILES_MAX: Final = 512
#: what an entry of a manifest takes in memory, nearly
_ENTRY_BYTES: Final = 600


@dataclass
class RemoteCache:
    """What all partitions of a broker share."""

    files: ChunkFiles
    loader: Loader
    workers: Workers
    clock: Clock
    #: bytes of chunks on the disk
    limit: int
    #: bytes of manifests, maps and pages in memory
    document_limit: int = _DOCUMENT_BYTES
    #: chunks by the name of their object and their number
    chunks: Residency[tuple[str, int], Chunk] = field(init=False)
    documents: Residency[str, SegmentMap | Page | Manifest] = field(init=False)
    answers: Residency[tuple[str, int, int], tuple[DatedBatch | None]] = field(init=False)
    stats: RemoteStats = field(default_factory=RemoteStats)

    def __post_init__(self) -> None:
        self.chunks = Residency(self.limit)
        self.documents = Residency(self.document_limit)
        self.answers = Residency(_ANSWERS)

    async def close(self) -> None:
        """Stop all loads and close the files."""
        await self.loader.stop()
        await self.workers.in_thread(self.chunks.clear)


class RemotePartition:
    """See `penstock.storage.remote_tier.RemoteTier`.

    Why it has more than 25 methods: each kind of document has a lookup and a load.
    """

    def __init__(
        self,
        name: str,
        source: RemoteSource,
        cache: RemoteCache,
        local_start: Callable[[], int] | None = None,
    ) -> None:
        """`name` is that of no other partition.

        `local_start` returns the local log start of a log that goes on and is copied to its archive. The
        archive has to reach to it, and nothing behind it is read here. None if the archive does not change.
        """
        self.name = name
        self._local_start = local_start
        self._source = source
        self._cache = cache
        self._failures = Failures(cache.clock)
        self._ahead: ReadAhead[tuple[str, int]] = ReadAhead()

    # -- the interface of the log

    def read(self, offset: int, max_bytes: int, at_least_one: bool, upper: int = FOREVER) -> FileRange | None:
        found = self._find(offset)
        if found is None:
            return None
        chunk, position, entry, number = found
        end = chunk.size
        with self._of_cache(entry, number):
            if self._local_start is not None:
                # After an unclean election the archive may have other records there than the log.
                upper = min(upper, self._local_start())
            if chunk.last_offset >= upper:
                end = chunk.find(upper)
            data = chunk.read(position, end, max_bytes, at_least_one)
        self._read_ahead(entry, number)
        return data

    def offset_behind(self, offset: int, found: FileRange) -> int:
        held = self._find(offset)
        assert held is not None and held[0].file is found.file, "the range was found at this offset"
        return held[0].offset_behind(found.position + found.size)

    def aborted_transactions(self, start: int, upper: int) -> list[tuple[int, int]]:
        found = self._find(start)
        if found is None:
            return []
        chunk, _, entry, number = found
        if chunk.open and chunk.searched < self._opened().next_offset:
            # Markers that were only in local segments are in the archive by now.
            raise self._lost(entry, number)
        return [
            (each.producer_id, each.first_offset)
            for each in chunk.aborted
            if each.first_offset < upper and each.last_offset >= start
        ]

    def batch_at_or_after(self, timestamp: int, start: int) -> DatedBatch | None:
        key = (f"{self.name}@{self._opened().number}", timestamp, start)
        answer = self._cache.answers.get(key)
        if answer is None:
            raise self._cold(key, lambda: self._answer(key, timestamp, start))
        return answer[0]

    def max_timestamp(self) -> int:
        manifest = self._opened()
        places: list[PageEntry | SegmentEntry] = [*manifest.pages, *manifest.segments]
        return max((each.max_timestamp for each in places), default=-1)

    # -- what is there

    def _opened(self) -> Manifest:
        found = self._cache.documents.get(self.name)
        if not isinstance(found, Manifest) or not self._reaches(found):
            raise self._cold(self.name, self.open)
        return found

    def _reaches(self, manifest: Manifest) -> bool:
        return self._local_start is None or manifest.next_offset >= self._local_start()

    def renew(self, manifest: Manifest) -> None:
        """Read by a newer manifest from now on."""
        entries = len(manifest.pages) + len(manifest.segments)
        self._cache.documents.add(self.name, manifest, _ENTRY_BYTES * (1 + entries))

    def _find(self, offset: int) -> tuple[Chunk, int, SegmentEntry, int] | None:
        """The chunk with the first batch at or behind `offset`, and the batch's position; None behind all."""
        manifest = self._opened()
        if self._local_start is not None and offset < manifest.base_offset:
            # A consumer that goes on behind the gap would skip records.
            raise RemoteReadFailed(f"the archive of {self.name} starts at offset {manifest.base_offset}")
        entry = self._entry(offset)
        while entry is not None:
            segment = self._map(entry)
            for number in segment.candidates(offset):
                chunk = self._chunk(entry, number)
                with self._of_cache(entry, number):
                    position = chunk.find(offset)
                if position < chunk.size:
                    return chunk, position, entry, number
            # Compaction left nothing of the rest of this segment.
            offset = entry.next_offset
            entry = self._entry(offset)
        return None

    def _entry(self, offset: int) -> SegmentEntry | None:
        manifest = self._opened()
        place = place_of(manifest, offset)
        if not isinstance(place, PageEntry):
            return place
        page = self._cache.documents.get(place.name)
        if page is None:
            raise self._cold(place.name, lambda: self.page(place))
        assert isinstance(page, Page)
        return entry_at(page.segments, offset)

    def _map(self, entry: SegmentEntry) -> SegmentMap:
        found = self._cache.documents.get(entry.name)
        if found is None:
            raise self._cold(entry.name, lambda: self.map_of(entry))
        assert isinstance(found, SegmentMap)
        return found

    def _chunk(self, entry: SegmentEntry, number: int) -> Chunk:
        chunk = self._cache.chunks.get((entry.name, number))
        if chunk is None:
            raise self._cold((entry.name, number), lambda: self.chunk(entry, number))
        return chunk

    def _lost(self, entry: SegmentEntry, number: int) -> ColdRemote:
        """Forget a chunk whose file does not have what was written, and read it again."""
        self._forget(entry, number)
        return self._cold((entry.name, number), lambda: self.chunk(entry, number))

    def _forget(self, entry: SegmentEntry, number: int) -> None:
        lost = self._cache.chunks.drop((entry.name, number))
        self._cache.stats.cached_bytes -= 0 if lost is None else lost.size

    @contextmanager
    def _of_cache(self, entry: SegmentEntry, number: int) -> Iterator[None]:
        """Reads of a chunk's file: its errors are those of the cache, and not of a data directory."""
        try:
            yield
        except ColdRemote:
            raise
        except ColdPages as e:
            cold = e
            raise ColdRemote(str(e), lambda: self._warm(entry, number, cold)) from e
        except CorruptLog as e:
            raise self._lost(entry, number) from e
        except OSError as e:
            self._unreadable(entry, number, e)
            raise self._cold((entry.name, number), lambda: self.chunk(entry, number)) from e

    async def _warm(self, entry: SegmentEntry, number: int, cold: ColdPages) -> bool:
        try:
            return await cold.load(self._cache.workers)
        except OSError as e:
            self._unreadable(entry, number, e)
            return True

    def _unreadable(self, entry: SegmentEntry, number: int, error: OSError) -> None:
        """Forget a chunk that the disk of the cache does not return, and do not read for a moment."""
        self._forget(entry, number)
        self._cache.stats.errors += 1
        self._failures.failed(error)

    def _cold(self, key: Any, load: Callable[[], Awaitable[object]]) -> ColdRemote:
        """What to load; RemoteReadFailed while another load has just failed."""
        self._failures.check()

        async def loaded() -> None:
            try:
                await load()
            except ArchiveError:
                if self._local_start is not None:
                    # A newer manifest may name other objects.
                    self._cache.documents.drop(self.name)
                raise

        return ColdRemote(f"{self.name}: {key}", lambda: self._cache.loader.load(key, loaded, self._failures))

    # -- loads

    async def open(self) -> Manifest:
        found = self._cache.documents.get(self.name)
        if isinstance(found, Manifest) and self._reaches(found):
            return found
        manifest = await self._source.manifest()
        if not self._reaches(manifest):
            raise ArchiveDamaged(
                f"the archive of {self.name} ends at offset {manifest.next_offset}: it is an earlier state, "
                "or that of another cluster"
            )
        self.renew(manifest)
        return manifest

    async def page(self, entry: PageEntry) -> Page:
        found = self._cache.documents.get(entry.name)
        if found is None:
            found = await self._source.page(await self.open(), entry)
            self._cache.documents.add(entry.name, found, _ENTRY_BYTES * len(found.segments))
        assert isinstance(found, Page)
        return found

    async def map_of(self, entry: SegmentEntry) -> SegmentMap:
        found = self._cache.documents.get(entry.name)
        if found is None:
            found = await self._source.map_of(await self.open(), entry)
            self._cache.documents.add(entry.name, found, found.size)
        assert isinstance(found, SegmentMap)
        return found

    async def times(self, entry: SegmentEntry) -> bytes:
        return await self._source.times(await self.open(), entry)

    async def chunk(self, entry: SegmentEntry, number: int) -> Chunk:
        """A chunk in the cache; it is read, verified and written if it is not there."""
        cache = self._cache
        found = cache.chunks.get((entry.name, number))
        if found is not None:
            return found
        manifest, segment = await self.open(), await self.map_of(entry)
        aborted, still_open = await self._transactions(segment)
        index = segment.chunk(number)
        start, end = segment.blocks_of(index)
        name = manifest.owner.object(entry.name)
        data = await read_buffer(self._source.store, name, start, end)
        cache.stats.requests += 1
        cache.stats.bytes_read += len(data)
        file, last = await cache.workers.in_thread(self._write, data, start, segment, index, name)
        size, searched = index.end - index.start, manifest.next_offset
        chunk = Chunk(file, size, entry.base_offset, last, index, aborted, still_open, searched)
        gone = cache.chunks.add((entry.name, number), chunk, max(chunk.size, cache.limit // _FILES_MAX))
        cache.stats.cached_bytes += chunk.size - sum(each.size for each in gone)
        if gone:
            # Their files are closed, which frees the disk and may wait for it.
            await cache.workers.in_thread(gone.clear)
        return chunk

    def _write(
        self, data: Buffer, start: int, segment: SegmentMap, index: ChunkRange, name: str
    ) -> tuple[File, int]:
        """Verify a chunk and write it, in a worker thread; returns the file and the last offset."""
        check_blocks(data, start, segment.blocks, segment.block_size, name)
        batches = self._source.rewritten(memoryview(data)[index.start - start : index.end - start], name)
        size = index.end - index.start
        assert len(batches) == size
        file = self._cache.files.write(batches)
        return file, last_offset_of(file, size, index, name)

    async def _transactions(
        self, segment: SegmentMap
    ) -> tuple[tuple[AbortedTransaction, ...], tuple[OpenTransaction, ...]]:
        """The aborted transactions with records in a segment, and those whose marker is not in the archive.

        A transaction that is open at the end of the segment has its marker in one of the following ones.
        """
        found, pending, at = list(segment.aborted), list(segment.open), segment.entry.next_offset
        while pending and (following := await self._entry_of(at)) is not None:
            pending = unresolved(pending, await self.map_of(following), found)
            at = following.next_offset
        return tuple(found), tuple(pending)

    async def _entry_of(self, offset: int) -> SegmentEntry | None:
        place = place_of(await self.open(), offset)
        return entry_at((await self.page(place)).segments, offset) if isinstance(place, PageEntry) else place

    async def _answer(self, key: tuple[str, int, int], timestamp: int, start: int) -> None:
        found = await dated_batch(self, await self.open(), timestamp, start, self._cache.workers)
        self._cache.answers.add(key, (found,), 1)

    # -- reading ahead

    def _read_ahead(self, entry: SegmentEntry, number: int) -> None:
        following = self._following(entry, number)
        depth = self._ahead.reads((entry.name, number), None if following is None else _key(following))
        cache = self._cache
        while depth > 0 and following is not None and cache.loader.has_room:
            at, n = following
            if (at.name, n) not in cache.chunks:
                cache.loader.start((at.name, n), lambda at=at, n=n: self.chunk(at, n), self._failures)  # type: ignore[misc]
            depth, following = depth - 1, self._following(at, n)

    def _following(self, entry: SegmentEntry, number: int) -> tuple[SegmentEntry, int] | None:
        """The chunk behind another one; None if it is not known without a load."""
        segment = self._cache.documents.get(entry.name)
        if not isinstance(segment, SegmentMap):
            return None
        if number + 1 < segment.count:
            return entry, number + 1
        try:
            behind = self._entry(entry.next_offset)
        except ColdRemote:
            return None
        return None if behind is None else (behind, 0)


def _key(chunk: tuple[SegmentEntry, int]) -> tuple[str, int]:
    return chunk[0].name, chunk[1]
