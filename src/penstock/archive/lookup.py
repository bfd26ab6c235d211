"""Finds segments by offset and by timestamp, and batches within a segment.

A manifest has many segments in pages, which are objects of their own; these functions choose the page to
read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter

from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.archive.errors import ArchiveDamaged
from penstock.storage.index import IndexDamaged, OffsetIndex, TimeIndex

__all__ = ["entry_at", "pages_from_time", "place_of", "position_bracket", "start_of_time"]


def place_of(manifest: Manifest, offset: int) -> PageEntry | SegmentEntry | None:
    """The page or the segment that covers `offset`; None if the manifest does not reach to it."""
    if not manifest.base_offset <= offset < manifest.next_offset:
        return None
    paged = manifest.pages[-1].next_offset if manifest.pages else manifest.base_offset
    places: Sequence[PageEntry | SegmentEntry] = manifest.pages if offset < paged else manifest.segments
    return places[bisect_right(places, offset, key=attrgetter("base_offset")) - 1]


def entry_at(entries: Sequence[SegmentEntry], offset: int) -> SegmentEntry:
    """The segment of `entries` that covers `offset`, which is in one of them."""
    return entries[bisect_right(entries, offset, key=attrgetter("base_offset")) - 1]


def pages_from_time(manifest: Manifest, timestamp: int) -> list[PageEntry | SegmentEntry]:
    """The pages and segments that have a record of `timestamp` or later, in the order of offsets.

    The first one has the answer to ListOffsets by timestamp, if its record is not below the log start.
    """
    places: list[PageEntry | SegmentEntry] = [*manifest.pages, *manifest.segments]
    start = manifest.log_start_offset
    return [each for each in places if each.max_timestamp >= timestamp and each.next_offset > start]


def position_bracket(index: bytes, log_size: int, base_offset: int, offset: int) -> tuple[int, int]:
    """(start of a batch at or before that with `offset`, start of a batch at or behind it)."""
    try:
        return OffsetIndex.decode(index, log_size).bracket(offset - base_offset, log_size)
    except IndexDamaged as e:
        raise ArchiveDamaged(f"the offset index of the segment at {base_offset} is damaged: {e}") from e


def start_of_time(index: bytes, base_offset: int, timestamp: int) -> int:
    """An offset from which to search the first record of `timestamp` or later."""
    try:
        return base_offset + TimeIndex.decode(index).before(timestamp) + 1
    except IndexDamaged as e:
        raise ArchiveDamaged(f"the time index of the segment at {base_offset} is damaged: {e}") from e
