"""The index files of a segment: reads, checks and writes them.

An index has no checksum. `read_indexes` compares its last entry with the batch that the entry points to, so
that the index of another segment is found out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from penstock.ports import File, Files
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA
from penstock.storage.index import IndexDamaged, OffsetIndex, TimeIndex
from penstock.storage.scan import CorruptLog, read_bytes, scan
from penstock.storage.segment_files import OFFSET_INDEX, TIME_INDEX

__all__ = ["add_last_batch", "read_indexes", "read_last_entry", "write_indexes"]


def read_indexes(
    files: Files, path: str, open_batches: Callable[[], File], base_offset: int, size: int, cached_only: bool
) -> tuple[OffsetIndex, TimeIndex]:
    """The indexes of the segment whose files start with `path` and which has `size` bytes of batches.

    IndexDamaged if they do not fit the batches, FileNotFoundError if one is missing.
    """
    offsets = OffsetIndex.decode(_read(files, path + OFFSET_INDEX, cached_only), size)
    times = TimeIndex.decode(_read(files, path + TIME_INDEX, cached_only))
    if offsets.positions:
        try:
            _, header = next(scan(open_batches(), offsets.positions[-1], size, cached_only))
        except CorruptLog as e:
            raise IndexDamaged("its last entry points to no batch") from e
        if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] - base_offset != offsets.ends[-1]:
            raise IndexDamaged("its last entry does not name the end of a batch")
    return offsets, times


def _read(files: Files, path: str, cached_only: bool) -> bytes:
    file = files.open(path)
    return read_bytes(file, file.size(), 0, cached_only)


def read_last_entry(files: Files, path: str, entry_bytes: int, cached_only: bool) -> bytes:
    """The last entry of an index file; nothing if there is none, or the file is missing or torn."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return b""
    size = file.size()
    if size < entry_bytes or size % entry_bytes:
        return b""
    return read_bytes(file, entry_bytes, size - entry_bytes, cached_only)


def write_indexes(files: Files, path: str, offsets: OffsetIndex, times: TimeIndex) -> list[File]:
    """Replace the content of the index files; returns them, as they are not synced yet."""
    return [
        _write(files, path + OFFSET_INDEX, offsets.encode()),
        _write(files, path + TIME_INDEX, times.encode()),
    ]


def _write(files: Files, path: str, data: bytes) -> File:
    file = files.open(path, create=True)
    file.truncate(0)
    file.append(data)
    return file


def add_last_batch(
    offsets: OffsetIndex, base_offset: int, scan_from: Callable[[int], Iterator[tuple[int, tuple[int, ...]]]]
) -> None:
    """Have the index end with the last batch, so that opening the segment finds its end at once."""
    indexed = offsets.positions[-1] if offsets.positions else 0
    # If the file was damaged meanwhile, the next open has to find the end.
    with suppress(CorruptLog):
        for position, header in deque(scan_from(indexed), maxlen=1):
            if position > indexed:
                offsets.add(header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] - base_offset, position)
