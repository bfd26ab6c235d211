"""Reads the batches of one archived partition, from any offset on, and verifies every byte that it returns.

A read gets whole blocks of a segment and compares them with the checksums of the blocks, which the table of
the segment protects. Pages and tails of segments stay in bounded caches.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator
from typing import Final, NamedTuple

from penstock.archive import segment_object
from penstock.archive.batches import split_batches
from penstock.archive.building import checked_header
from penstock.archive.checking import check_table
from penstock.archive.documents import Manifest, Page, PageEntry, SegmentEntry, decode
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.lookup import entry_at, pages_from_time, place_of, position_bracket, start_of_time
from penstock.archive.manifests import check_page
from penstock.archive.objects import get_named
from penstock.archive.segment_object import (
    FOOTER_BYTES,
    SegmentTable,
    check_blocks,
    parse_footer,
    parse_table,
    section_of,
)
from penstock.ports import ObjectStore
from penstock.records.batch import LOG_OVERHEAD, read_offset_and_length
from penstock.records.checksum import crc32c
from penstock.records.record import iter_records

__all__ = ["PartitionReader"]

#: what is read of a segment's end at first: footer, table and, mostly, all sections
_TAIL_BYTES: Final = 64 << 10
_PAGES_CACHED: Final = 16
_TAILS_CACHED: Final = 64
#: A record may be as large as its batch; a batch is at most as large as a response.
_RECORD_BYTES_MAX: Final = 1 << 31


class _Tail(NamedTuple):
    """The table of a segment and the sections that reads need."""

    table: SegmentTable
    offsets: bytes
    times: bytes
    blocks: bytes


class PartitionReader:
    """Reads what one manifest names."""

    def __init__(self, store: ObjectStore, manifest: Manifest) -> None:
        self._store = store
        self.manifest = manifest
        self.owner = manifest.owner
        self._pages: OrderedDict[str, Page] = OrderedDict()
        self._tails: OrderedDict[str, _Tail] = OrderedDict()

    async def segments(self) -> AsyncIterator[SegmentEntry]:
        """All segments, oldest first."""
        for page in self.manifest.pages:
            for entry in (await self._page(page)).segments:
                yield entry
        for entry in self.manifest.segments:
            yield entry

    async def segment_at(self, offset: int) -> SegmentEntry | None:
        """The segment that covers `offset`; None if the manifest does not reach to it."""
        place = place_of(self.manifest, offset)
        if isinstance(place, PageEntry):
            return entry_at((await self._page(place)).segments, offset)
        return place

    async def read(self, offset: int, bytes_max: int) -> bytes:
        """Whole batches from the one that has `offset` on, of one segment.

        At least one batch, and empty only at the end of the manifest. The first batch may start below
        `offset`.
        """
        entry = await self.segment_at(offset)
        while entry is not None:
            data = await self._read_segment(entry, offset, bytes_max)
            if data:
                return data
            offset = entry.next_offset  # compaction has left no batch behind `offset` in this segment
            entry = await self.segment_at(offset)
        return b""

    async def offset_of_time(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record of `timestamp` or later; None if there is none."""
        for place in pages_from_time(self.manifest, timestamp):
            entries = (await self._page(place)).segments if isinstance(place, PageEntry) else (place,)
            for entry in entries:
                if entry.max_timestamp >= timestamp:
                    found = await self._search(entry, timestamp)
                    if found is not None:
                        return found
        return None

    async def _search(self, entry: SegmentEntry, timestamp: int) -> tuple[int, int] | None:
        tail = await self._tail(entry)
        log_start = self.manifest.log_start_offset
        offset = max(start_of_time(tail.times, entry.base_offset, timestamp), log_start)
        while offset < entry.next_offset:
            data = await self._read_segment(entry, offset, segment_object.BLOCK_BYTES)
            if not data:
                return None
            for batch in split_batches(data, entry.name):
                header = checked_header(batch, entry.name)
                offset = header.next_offset
                if header.max_timestamp < timestamp:
                    continue
                for record in iter_records(batch, _RECORD_BYTES_MAX):
                    if record.timestamp >= timestamp and record.offset >= log_start:
                        return record.timestamp, record.offset
        return None

    async def _read_segment(self, entry: SegmentEntry, offset: int, bytes_max: int) -> bytes:
        """Whole batches of one segment from the one with `offset` on; empty if it has none there."""
        tail = await self._tail(entry)
        start, _ = position_bracket(tail.offsets, entry.log_size, entry.base_offset, offset)
        end = min(start + max(bytes_max, 1), entry.log_size)
        while True:
            data = await self._blocks(entry, tail, start, end)
            skipped, wanted = _whole_batches(data, offset, bytes_max)
            if wanted or end >= entry.log_size:
                return data[skipped : skipped + wanted]
            # Not even one whole batch: read on to its end, or further if its size is not known yet.
            end = min(end + max(segment_object.BLOCK_BYTES, end - start), entry.log_size)

    async def _blocks(self, entry: SegmentEntry, tail: _Tail, start: int, end: int) -> bytes:
        """The bytes [start, end) of the batches, verified."""
        size = tail.table.block_size
        first = start - start % size
        last = min(-(-end // size) * size, entry.log_size)
        name = self.owner.object(entry.name)
        data = await self._range(name, first, last)
        check_blocks(data, first, tail.blocks, size, name)
        return data[start - first : end - first]

    async def _range(self, name: str, start: int, end: int) -> bytes:
        if start == end:
            return b""
        try:
            data = await self._store.get_range(name, start, end)
        except FileNotFoundError as e:
            raise ArchiveDamaged(f"{name} is missing") from e
        if len(data) != end - start:
            raise ArchiveDamaged(f"{name} has {len(data)} bytes where {end - start} were read")
        return data

    async def _tail(self, entry: SegmentEntry) -> _Tail:
        tail = self._tails.get(entry.name)
        if tail is None:
            tail = self._tails[entry.name] = await self._read_tail(entry)
            if len(self._tails) > _TAILS_CACHED:
                self._tails.popitem(last=False)
        return tail

    async def _read_tail(self, entry: SegmentEntry) -> _Tail:
        name = self.owner.object(entry.name)
        start = max(0, entry.size - _TAIL_BYTES)
        data = await self._range(name, start, entry.size)
        table_size, _ = parse_footer(data, name)
        if table_size + FOOTER_BYTES > len(data):
            raise ArchiveDamaged(f"{name} has a table that is longer than the object")
        table = parse_table(data, entry.size, name)
        check_table(table, entry, self.owner)
        if start > table.log_size:
            data = await self._range(name, table.log_size, start) + data
            start = table.log_size
        sections = []
        for section in (segment_object.INDEX, segment_object.TIME_INDEX, segment_object.BLOCKS):
            found = section_of(table, section)
            content = data[found.position - start : found.position - start + found.size]
            if crc32c(content) != found.crc32c:
                raise ArchiveDamaged(f"{name} has a damaged section {section}")
            sections.append(content)
        return _Tail(table, *sections)

    async def _page(self, entry: PageEntry) -> Page:
        page = self._pages.get(entry.name)
        if page is None:
            name = self.owner.object(entry.name)
            page = decode(await get_named(self._store, name, entry.size, entry.sha256), Page, name)
            check_page(page, entry, self.manifest)
            self._pages[entry.name] = page
            if len(self._pages) > _PAGES_CACHED:
                self._pages.popitem(last=False)
        return page


def _whole_batches(data: bytes, offset: int, bytes_max: int) -> tuple[int, int]:
    """(bytes of batches below `offset`, bytes of whole batches behind them, one or up to `bytes_max`)."""
    position, skipped = 0, 0
    view = memoryview(data)
    while len(view) - position >= LOG_OVERHEAD:
        _, size = read_offset_and_length(view, position)
        end = position + size
        if end > len(view) or (position > skipped and end - skipped > bytes_max):
            break
        if checked_header(view[position:end], "a segment").last_offset < offset:
            skipped = end
        position = end
    return skipped, position - skipped
