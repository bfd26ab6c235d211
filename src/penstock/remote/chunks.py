"""Divides the batches of an archived segment into chunks, at boundaries of batches.

The offset index of the segment has the start of a batch every few KiB. A chunk starts at the first of these
behind a multiple of the chunk size, so that no batch has to be read to find it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from penstock.archive.documents import SegmentEntry
from penstock.archive.errors import ArchiveDamaged
from penstock.storage.index import IndexDamaged, OffsetIndex
from penstock.storage.transactions import AbortedTransaction

__all__ = ["CHUNK_BYTES", "ChunkRange", "OpenTransaction", "SegmentMap", "unresolved"]

#: bytes of a chunk: what one read of the object store gets, and the unit of the cache
CHUNK_BYTES = 4 << 20


class OpenTransaction(NamedTuple):
    """A transaction without a marker in its segment or before."""

    producer_id: int
    first_offset: int


class ChunkRange(NamedTuple):
    """The bytes of a chunk within the batches of its segment, and the index of these."""

    start: int
    end: int
    #: last offsets of the indexed batches relative to the segment, and their positions in the chunk
    ends: array[int]
    positions: array[int]


class SegmentMap:
    """Where the batches of one segment are, and which of its transactions were aborted."""

    __slots__ = ("_index", "_slots", "aborted", "block_size", "blocks", "entry", "open", "size")

    def __init__(
        self,
        entry: SegmentEntry,
        index: bytes,
        blocks: bytes,
        block_size: int,
        aborted: tuple[AbortedTransaction, ...],
        still_open: tuple[OpenTransaction, ...],
        chunk_bytes: int = CHUNK_BYTES,
    ) -> None:
        """`aborted` have their marker in the segment; `still_open` were open at its end."""
        self.entry = entry
        self.blocks, self.block_size = blocks, block_size
        self.aborted, self.open = aborted, still_open
        try:
            self._index = OffsetIndex.decode(index, entry.log_size)
        except IndexDamaged as e:
            raise ArchiveDamaged(f"{entry.name} has a damaged offset index: {e}") from e
        if not len(self._index) or self._index.positions[0]:
            raise ArchiveDamaged(f"{entry.name} has an offset index without its first batch")
        #: the slots of the index at which chunks start
        self._slots = [0]
        positions = self._index.positions
        while (slot := bisect_left(positions, positions[self._slots[-1]] + chunk_bytes)) < len(positions):
            self._slots.append(slot)
        #: bytes of memory that it takes, nearly
        self.size = len(index) + len(blocks) + 34 * len(aborted) + 1000

    @property
    def count(self) -> int:
        """The number of chunks."""
        return len(self._slots)

    def candidates(self, offset: int) -> Iterator[int]:
        """The chunks that may have the batch with `offset`, or the first one behind it; at most two."""
        relative = offset - self.entry.base_offset
        ends = self._index.ends
        number = max(bisect_left(self._slots, relative, key=lambda slot: ends[slot]) - 1, 0)
        yield number
        if number + 1 < len(self._slots):
            yield number + 1

    def chunk(self, number: int) -> ChunkRange:
        index, slots = self._index, self._slots
        first = slots[number]
        last = slots[number + 1] if number + 1 < len(slots) else len(index)
        start = index.positions[first]
        end = index.positions[last] if last < len(index) else self.entry.log_size
        positions = array("I", [each - start for each in index.positions[first:last]])
        return ChunkRange(start, end, index.ends[first:last], positions)

    def blocks_of(self, chunk: ChunkRange) -> tuple[int, int]:
        """The range of whole blocks that has the chunk: what has to be read to verify it."""
        size = self.block_size
        return chunk.start - chunk.start % size, min(-(-chunk.end // size) * size, self.entry.log_size)


def unresolved(
    pending: list[OpenTransaction], following: SegmentMap, found: list[AbortedTransaction]
) -> list[OpenTransaction]:
    """The transactions of `pending` that are still open at the end of the following segment.

    Those that it has the abort marker of are added to `found`.
    """
    wanted = set(pending)
    found += [
        each for each in following.aborted if OpenTransaction(each.producer_id, each.first_offset) in wanted
    ]
    still_open = set(following.open)
    return [each for each in pending if each in still_open]
