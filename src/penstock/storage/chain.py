"""Checks that the batches of a segment follow each other, before they are read for the first time.

No checksum covers the base offset and the magic byte of a batch. A batch with a wrong base offset would be
sent to consumers and followers, which continue behind it and skip records. So a read looks at the headers of
its range first: every batch has to begin where the one before it ends, and the index has to agree.

Bytes that this process has written are not checked, and no range is checked twice. The scrubber finds later
damage. Cost: for a range that was there when the log was opened, once, one short read per 16 KiB of batches
or per batch of more than 4 KiB, and a comparison per batch. The end of the log, which most readers want,
costs nothing.

Compaction leaves offsets out: there the offsets have to rise.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from struct import Struct
from typing import Final, Protocol

from penstock.ports import File
from penstock.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC
from penstock.storage.index import OffsetIndex
from penstock.storage.scan import ColdPages, CorruptLog
from penstock.storage.segment_files import Damage

__all__ = ["BrokenChain", "CheckedRanges", "check_again", "sound_end"]

_CHUNK_BYTES: Final = 16 << 10
#: the most headers behind the start of a read that are looked at for it, a few milliseconds' worth
_HEADERS_MAX: Final = 4096
#: the most separate ranges that are remembered for a segment
_RANGES_MAX: Final = 64
#: base offset, length, magic, last offset delta
_STEP: Final = Struct(">qi4xb6xi")


class BrokenChain(CorruptLog):
    """A batch does not begin where the one before it ends, though its segment is not compacted."""

    def __init__(self, path: str, position: int) -> None:
        super().__init__(f"the batch at byte {position} of {path} does not follow the one before it")


class CheckedRanges:
    """The checked parts of one segment file: from one batch start to another."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        #: of ranges that neither overlap nor touch, in order: starts, and (end, next offset)
        self._starts: list[int] = []
        self._ends: list[tuple[int, int]] = []

    def end(self, position: int) -> tuple[int, int] | None:
        """(end, the offset that comes next) of the checked range that `position` is in; None without one."""
        nth = bisect_right(self._starts, position) - 1
        return self._ends[nth] if nth >= 0 and self._ends[nth][0] > position else None

    def add(self, start: int, end: int, next_offset: int) -> None:
        first = bisect_left(self._ends, (start, -1))
        last = bisect_right(self._starts, end)
        found = (end, next_offset)
        if first < last:
            start, found = min(start, self._starts[first]), max(found, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [found]
        if len(self._starts) > _RANGES_MAX:
            # Readers at many places: their ranges are checked once more.
            del self._starts[0], self._ends[0]


class _CheckedSegment(Protocol):
    """A segment as the check uses it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def damage(self) -> list[Damage]: ...
    @property
    def is_compacted(self) -> bool: ...

    checked: CheckedRanges | None
    size_found: int

    def open_file(self) -> File: ...
    def offsets(self, cached_only: bool = False) -> OffsetIndex: ...


def check_again(segment: _CheckedSegment) -> None:
    """Have the next reads check all batches of a segment, also those that this process has written."""
    segment.checked, segment.size_found = None, segment.size


def sound_end(
    segment: _CheckedSegment, offset: int, position: int, end: int, compact: bool, cached_only: bool
) -> int:
    """The end of the batches that follow each other, up to `end`, for a read of `offset` at `position`.

    BrokenChain if the batch at `position` is not known to be the one that holds `offset`. The batches are
    followed from the index entry before it, at which the search for `offset` begins. Offsets may be missing
    in a log that is compacted now (`compact`), and in a segment that was.
    """
    index = segment.offsets(cached_only)
    start, _ = index.bracket(offset - segment.base_offset, segment.size)
    ranges = segment.checked
    if ranges is None:
        ranges = segment.checked = CheckedRanges()
    checked = ranges.end(start)
    if checked is not None and checked[0] >= end and checked[0] > position:
        return end
    chain = _Chain(segment, index, start if checked is None else checked[0], compact)
    if checked is not None:
        chain.expected = checked[1]
    is_broken = chain.follow(position, end, cached_only)
    if chain.at > start and chain.expected is not None:
        ranges.add(start, chain.at, chain.expected)
    if is_broken and chain.at <= position:
        raise BrokenChain(segment.open_file().path, chain.at)
    return min(chain.at, end)


class _Chain:
    """A walk along the batches of a segment."""

    __slots__ = ("_damaged", "_gaps_allowed", "_index", "_segment", "at", "expected")

    def __init__(self, segment: _CheckedSegment, index: OffsetIndex, start: int, compact: bool) -> None:
        self._segment = segment
        self._index = index
        self._gaps_allowed = compact or segment.is_compacted
        self._damaged = {damage.position: damage for damage in segment.damage}
        #: where the next batch starts, and its offset; None for the batch of an index entry
        self.at = start
        self.expected: int | None = None if start else segment.base_offset

    def follow(self, position: int, end: int, cached_only: bool) -> bool:
        """Go beyond `position`, and then up to `end` or for a number of batches; true if the chain breaks."""
        file, size, left = self._segment.open_file(), self._segment.size, _HEADERS_MAX
        chunk, chunk_at, start, step = b"", 0, self.at, 0
        while (self.at < end or self.at <= position) and self.at < size and left > 0:
            at = self.at
            left -= at > position
            if at in self._damaged:
                self.at, self.expected = self._damaged[at].end, self._damaged[at].next_offset
                continue
            if not chunk_at <= at <= chunk_at + len(chunk) - HEADER_SIZE:
                # Of large batches the header alone: a chunk would have no other.
                wanted = _CHUNK_BYTES if 4 * step < _CHUNK_BYTES else HEADER_SIZE
                chunk = _read(file, at, min(wanted, size - at), start, end, cached_only)
                chunk_at = at
                if len(chunk) < HEADER_SIZE:
                    return True
            base, length, magic, delta = _STEP.unpack_from(chunk, at - chunk_at)
            if magic != MAGIC or delta < 0 or not HEADER_SIZE <= length + LOG_OVERHEAD <= size - at:
                return True
            if not self._fits(base, base + delta):
                return True
            self.expected = base + delta + 1
            step = length + LOG_OVERHEAD
            self.at = at + step
        return False

    def _fits(self, base: int, last: int) -> bool:
        """Returns true if the next batch may have the offsets from `base` to `last`."""
        expected = self.expected
        if expected is not None:
            return base == expected or (self._gaps_allowed and base > expected)
        slot = bisect_left(self._index.positions, self.at)
        return last == self._segment.base_offset + self._index.ends[slot]


def _read(file: File, at: int, size: int, start: int, end: int, cached_only: bool) -> bytes:
    if not cached_only:
        return file.pread(size, at)
    data = file.pread_cached(size, at)
    if data is None:
        # All of it, so that one trip to a worker thread is enough.
        raise ColdPages(file, start, max(end - start, size))
    return data
