"""Steps through raw batches that lie one behind the other."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.archive.errors import ArchiveDamaged
from penstock.ports import Buffer
from penstock.records.batch import HEADER_SIZE, LOG_OVERHEAD, read_offset_and_length

__all__ = ["split_batches"]


def split_batches(data: Buffer, name: str, *, whole: bool = True) -> Iterator[memoryview]:
    """Each batch of `data`.

    The last one may be cut off unless `whole`: a broker's response ends like that.
    """
    view, position = memoryview(data), 0
    while position < len(view):
        if len(view) - position >= LOG_OVERHEAD:
            offset, size = read_offset_and_length(view, position)
            if size < HEADER_SIZE:
                raise ArchiveDamaged(f"{name} has a batch of {size} bytes at offset {offset}")
            if position + size <= len(view):
                yield view[position : position + size]
                position += size
                continue
        if whole:
            raise ArchiveDamaged(f"{name} ends within a batch")
        return
