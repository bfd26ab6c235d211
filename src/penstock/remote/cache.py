"""Chunks of archived segments in files of this machine, verified when they are written.

A file loses its name as soon as it is written, so that nothing is left behind however the process ends. Its
bytes stay as long as the cache, or a response that is being sent, holds it.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import count
from typing import NamedTuple

from penstock.archive.errors import ArchiveDamaged
from penstock.ports import Buffer, File, FileRange, Files
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA
from penstock.remote.chunks import ChunkRange, OpenTransaction
from penstock.storage.scan import CorruptLog, batch_size, find_batch, probe, scan
from penstock.storage.transactions import AbortedTransaction

__all__ = ["Chunk", "ChunkFiles", "last_offset_of"]


class Chunk(NamedTuple):
    """A chunk in the cache."""

    file: File
    size: int
    #: of the segment
    base_offset: int
    last_offset: int
    marks: ChunkRange
    #: aborted transactions that may reach into the chunk, and transactions whose end is behind the archive
    aborted: tuple[AbortedTransaction, ...]
    open: tuple[OpenTransaction, ...]
    #: to where the archive was searched for the markers of `open`
    searched: int

    def find(self, offset: int) -> int:
        """The position of the batch with `offset`, or of the next one; `size` if there is none."""
        ends, positions = self.marks.ends, self.marks.positions
        slot = bisect_left(ends, offset - self.base_offset)
        start = positions[slot - 1] if slot else 0
        end = positions[slot] if slot < len(positions) else self.size
        return find_batch(self.file, start, end, offset, True)

    def read(self, position: int, end: int, max_bytes: int, at_least_one: bool) -> FileRange | None:
        """Up to `max_bytes` from a batch to the one at `end`; a larger batch only with `at_least_one`."""
        size = end - position
        if size > max_bytes:
            first = batch_size(self.file, position, True)
            size = max_bytes if first <= max_bytes else first if at_least_one else 0
        if size <= 0:
            return None
        probe(self.file, position, size)
        return FileRange(self.file, position, size)

    def offset_behind(self, position: int) -> int:
        """An offset at or behind the end of the batch that ends at or behind `position`."""
        slot = bisect_left(self.marks.positions, position)
        return (
            self.base_offset + self.marks.ends[slot] + 1
            if slot < len(self.marks.ends)
            else self.last_offset + 1
        )


class ChunkFiles:
    """Makes the files of a cache in a folder."""

    def __init__(self, files: Files, folder: str, prefix: str) -> None:
        """`prefix` differs from that of every other process."""
        self._files = files
        self._path = f"{folder}/{prefix}"
        self._numbers = count()

    def write(self, data: Buffer) -> File:
        """A file with `data`, and without a name. Waits for the disk."""
        path = f"{self._path}-{next(self._numbers)}"
        file = self._files.open(path, create=True)
        self._files.remove(path)
        file.append(data)
        return file


def last_offset_of(file: File, size: int, index: ChunkRange, name: str) -> int:
    """The last offset of a chunk, whose batches behind the last indexed one are walked."""
    last = -1
    try:
        for _, header in scan(file, index.positions[-1], size):
            last = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
    except CorruptLog as e:
        raise ArchiveDamaged(f"{name}: {e}") from e
    return last
