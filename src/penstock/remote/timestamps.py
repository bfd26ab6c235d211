"""Finds batches by timestamp in an archived log, chunk by chunk."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from penstock.archive.documents import Manifest, Page, PageEntry, SegmentEntry
from penstock.archive.lookup import pages_from_time, start_of_time
from penstock.ports import Workers
from penstock.records.batch import LOG_OVERHEAD
from penstock.records.header_fields import (
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
)
from penstock.remote.cache import Chunk
from penstock.remote.chunks import SegmentMap
from penstock.storage.lookup import DatedBatch
from penstock.storage.scan import scan

__all__ = ["dated_batch"]


class Segments(Protocol):
    """The archived segments of a partition."""

    async def page(self, entry: PageEntry) -> Page: ...
    async def map_of(self, entry: SegmentEntry) -> SegmentMap: ...
    async def times(self, entry: SegmentEntry) -> bytes: ...
    async def chunk(self, entry: SegmentEntry, number: int) -> Chunk: ...


async def dated_batch(
    segments: Segments, manifest: Manifest, timestamp: int, start: int, workers: Workers
) -> DatedBatch | None:
    """The first batch that reaches `start` and whose largest timestamp is `timestamp` or later."""
    async for entry in _entries(segments, manifest, timestamp, start):
        times = await segments.times(entry)
        offset = max(start_of_time(times, entry.base_offset, timestamp), start)
        segment = await segments.map_of(entry)
        for number in range(next(segment.candidates(offset)), segment.count):
            chunk = await segments.chunk(entry, number)
            found = await workers.in_thread(_search, chunk, offset, timestamp, start)
            if found is not None:
                return found
    return None


async def _entries(
    segments: Segments, manifest: Manifest, timestamp: int, start: int
) -> AsyncIterator[SegmentEntry]:
    for place in pages_from_time(manifest, timestamp):
        if place.next_offset <= start:
            continue
        entries = (await segments.page(place)).segments if isinstance(place, PageEntry) else (place,)
        for entry in entries:
            if entry.max_timestamp >= timestamp and entry.next_offset > start:
                yield entry


def _search(chunk: Chunk, offset: int, timestamp: int, start: int) -> DatedBatch | None:
    for position, header in scan(chunk.file, chunk.find(offset), chunk.size):
        if header[MAX_TIMESTAMP] >= timestamp:
            batch = chunk.file.pread(header[BATCH_LENGTH] + LOG_OVERHEAD, position)
            behind = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            return DatedBatch(batch, timestamp, start, header[LEADER_EPOCH], behind)
    return None
