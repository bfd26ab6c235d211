"""The segments of a log in order, and the cache of their open files and indexes."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from penstock.storage.segment import Segment

__all__ = ["NO_OFFSETS", "SegmentCache", "Segments"]

#: One object for the logs of all partitions: Python makes a new empty set of 216 bytes each time.
NO_OFFSETS: Final[frozenset[int]] = frozenset()

#: the usual limit of descriptors is 1,024
_OPEN_FILES_MAX: Final = 256
#: 8 to 12 bytes each
_INDEX_ENTRIES_MAX: Final = 4_000_000


class SegmentCache:
    """The open files and indexes of sealed segments: the latest used segments keep them.

    To open a file again is one system call, to load indexes are many. One cache per data directory will do.
    """

    __slots__ = ("_entries", "_entries_max", "_indexed", "_open", "_open_max")

    def __init__(self, open_max: int = _OPEN_FILES_MAX, index_entries_max: int = _INDEX_ENTRIES_MAX) -> None:
        #: both in the order of use; with how many entries its indexes have
        self._open: OrderedDict[Segment, None] = OrderedDict()
        self._indexed: OrderedDict[Segment, int] = OrderedDict()
        self._open_max = open_max
        self._entries = 0
        self._entries_max = index_entries_max

    def used(self, segment: Segment) -> None:
        """`segment`, a sealed one, has just been read from."""
        opened, indexed = self._open, self._indexed
        opened[segment] = None
        opened.move_to_end(segment)
        if len(opened) > self._open_max:
            opened.popitem(last=False)[0].close_file()
        entries = segment.index_entries
        self._entries += entries - indexed.get(segment, 0)
        indexed[segment] = entries
        indexed.move_to_end(segment)
        while self._entries > self._entries_max and len(indexed) > 1:
            oldest, entries = indexed.popitem(last=False)
            self._entries -= entries
            oldest.drop_indexes()

    def forget(self, segment: Segment) -> None:
        """`segment` leaves its log, or becomes the one that is written to."""
        self._open.pop(segment, None)
        self._entries -= self._indexed.pop(segment, 0)

    def close_files(self) -> None:
        """Close all files: the process is short of descriptors. The next use opens them again."""
        for segment in self._open:
            segment.close_file()
        self._open.clear()

    def __len__(self) -> int:
        """How many files it keeps open."""
        return len(self._open)


class Segments:
    """At least one segment, by rising base offset; the last one, `active`, takes the appends."""

    __slots__ = ("_aborting", "_bases", "_segments", "active", "broken", "exchanged", "sealed_bytes")

    def __init__(self, segments: Iterable[Segment]) -> None:
        #: base offsets of segments whose batches a read found not to be those that were sealed
        self.exchanged = NO_OFFSETS
        #: base offsets of segments in which a read found a batch that does not follow the one before it
        self.broken = NO_OFFSETS
        self._reset(segments)

    def _reset(self, segments: Iterable[Segment]) -> None:
        self._segments = sorted(segments, key=lambda segment: segment.base_offset)
        self._bases = array("q", [segment.base_offset for segment in self._segments])
        self.active = self._segments[-1]
        self.sealed_bytes = sum(segment.size for segment in self._segments[:-1])
        #: the segments with aborted transactions; None if not known since the segments changed
        self._aborting: list[Segment] | None = None

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size(self) -> int:
        return self.sealed_bytes + self.active.size

    def holding(self, offset: int) -> Segment:
        """The segment with the largest base offset at or below `offset`; the first if there is none."""
        if offset >= self.active.base_offset:
            return self.active
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0)]

    def since(self, offset: int) -> list[Segment]:
        """`holding(offset)` and everything behind it."""
        return self._segments[max(bisect_right(self._bases, offset) - 1, 0) :]

    def aborting_since(self, offset: int, cached_only: bool = False) -> list[Segment]:
        """The segments of `since(offset)` with aborted transactions: often none."""
        if self._aborting is None:
            self._aborting = [
                segment for segment in self._segments if segment.transactions.entries(cached_only)
            ]
        start = self.holding(offset).base_offset
        return [segment for segment in self._aborting if segment.base_offset >= start]

    def aborted_in_active(self) -> None:
        """A transaction was aborted in the last segment."""
        if self._aborting is not None and self.active not in self._aborting[-1:]:
            self._aborting.append(self.active)

    def after(self, segment: Segment) -> Segment | None:
        """The next segment, None behind the last."""
        slot = bisect_right(self._bases, segment.base_offset)
        return self._segments[slot] if slot < len(self._segments) else None

    def push(self, segment: Segment) -> None:
        """Add a new last segment; the one that was last is sealed now."""
        assert segment.base_offset > self.active.base_offset, "segments rise"
        self.sealed_bytes += self.active.size
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment

    def shrink(self, segment: Segment, size: int) -> None:
        """Let a sealed segment end at `size`; its file keeps the bytes behind that."""
        assert segment is not self.active, "appends go to the end of the file"
        self.sealed_bytes -= segment.size - size
        segment.size = size

    def replace(self, old: Iterable[Segment], new: Iterable[Segment]) -> None:
        """Put `new` in the place of `old`; at least one segment must remain."""
        gone = {segment.base_offset for segment in old}
        kept = [segment for segment in self._segments if segment.base_offset not in gone]
        self._reset([*kept, *new])
