"""Compares the end of an archived segment with the log, byte by byte.

Why: leader epochs do not tell histories apart that began at the same point. A data directory that was brought
back from an earlier copy, and a clone of the cluster at the same address, assign the same offsets and leader
epochs to other records. Two histories that have parted have other batches from there on, so the last block of
each segment tells.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from penstock.archive.documents import SegmentEntry
from penstock.archive.names import ArchivedPartition
from penstock.archive.segment_object import BLOCKS, check_blocks
from penstock.ports import ObjectStore
from penstock.remote.source import Tail, read_range

__all__ = ["OwnBytes", "same_end"]

#: `own(offset, size)`: the last bytes, `size` at most, of a log's committed batches below `offset`. Nothing
#: if no batch ends there, None if the log has no such batch on its disk
OwnBytes: TypeAlias = Callable[[int, int], Awaitable[bytes | None]]


async def same_end(
    store: ObjectStore, tail: Tail, entry: SegmentEntry, owner: ArchivedPartition, own: OwnBytes
) -> bool | None:
    """Whether a log ends with the batches of a segment, at the segment's end; None if the log does not tell.

    ArchiveDamaged or OSError if the segment cannot be read.
    """
    size, block_size = tail.table.log_size, tail.table.block_size
    start = max(size - 1, 0) // block_size * block_size
    expected = await own(entry.next_offset, size - start)
    if expected is None:
        return None
    name = owner.object(entry.name)
    found = await read_range(store, name, start, size)
    check_blocks(found, start, tail.section(BLOCKS), block_size, name)
    return bool(expected) and found.endswith(expected)
