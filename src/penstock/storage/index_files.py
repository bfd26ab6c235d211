"""The index files of a segment: reads, checks and writes them.

The seal of a segment has the checksums of its indexes and of two of its batch headers, and `read_indexes`
compares them. It also compares the last entry of an index with the batch that the entry points to, for
segments without a seal.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from penstock.ports import File, Files
from penstock.records.checksum import crc32c
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA
from penstock.storage.index import TIME_ENTRY_BYTES, IndexDamaged, OffsetIndex, TimeIndex
from penstock.storage.scan import CorruptLog, read_bytes, scan
from penstock.storage.seals import NO_OWNER, ExpectedSeal, Seal, decode_seal, header_checksums
from penstock.storage.segment_files import LOG, OFFSET_INDEX, SEAL, TIME_INDEX

__all__ = [
    "OtherSegment",
    "add_last_batch",
    "newest_timestamp",
    "read_indexes",
    "read_last_entry",
    "write_indexes",
]


class OtherSegment(CorruptLog):
    """The batches of a segment are sound, and not those that it was sealed with."""

    def __init__(self, path: str, base_offset: int) -> None:
        super().__init__(f"{path}{LOG} is not the segment that was sealed: it is of another log, or older")
        self.base_offset = base_offset


def read_indexes(
    files: Files,
    path: str,
    open_batches: Callable[[], File],
    base_offset: int,
    size: int,
    expected: ExpectedSeal,
    cached_only: bool,
) -> tuple[OffsetIndex, TimeIndex]:
    """The indexes of the segment whose files start with `path` and which has `size` bytes of batches.

    IndexDamaged if they do not fit the batches, FileNotFoundError if one is missing. OtherSegment if the
    batches are not those of the seal.
    """
    data, seal = _read_seal(files, path, base_offset, size, cached_only)
    if seal is not None:
        found = header_checksums(open_batches(), seal.last, cached_only)
        is_sealed = found[0] == seal.first_header, found[1] == seal.last_header
        if seal.owner.may_be(expected.owner):
            # A damaged header is one of the two, and the scrubber finds it.
            if not any(is_sealed):
                raise OtherSegment(path, base_offset)
        elif any(is_sealed):
            # The segment of another log came with its seal.
            raise OtherSegment(path, base_offset)
        else:
            seal = None
    if not expected.admits(data, size):
        if header_checksums(open_batches(), 0, cached_only)[0] != expected.first_header:
            raise OtherSegment(path, base_offset)
        raise IndexDamaged("the seal is not that of the last clean shutdown")
    contents = [_read(files, path + suffix, cached_only) for suffix in (OFFSET_INDEX, TIME_INDEX)]
    if seal is not None:
        for content, checksum in zip(contents, (seal.offsets, seal.times), strict=True):
            if checksum not in (None, crc32c(content)):
                raise IndexDamaged("it is not the index that the segment was sealed with")
    offsets, times = OffsetIndex.decode(contents[0], size), TimeIndex.decode(contents[1])
    if offsets.positions:
        try:
            _, header = next(scan(open_batches(), offsets.positions[-1], size, cached_only))
        except CorruptLog as e:
            raise IndexDamaged("its last entry points to no batch") from e
        if header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] - base_offset != offsets.ends[-1]:
            raise IndexDamaged("its last entry does not name the end of a batch")
    return offsets, times


def _read_seal(
    files: Files, path: str, base_offset: int, size: int, cached_only: bool
) -> tuple[bytes | None, Seal | None]:
    """The file of a seal, and the seal if it is of a segment of this size. Its log is not compared."""
    try:
        data = _read(files, path + SEAL, cached_only)
    except FileNotFoundError:
        return None, None
    try:
        seal = decode_seal(data)
    except ValueError:
        return data, None
    return data, seal if seal.fits(NO_OWNER, base_offset, size) else None


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


def newest_timestamp(
    files: Files, path: str, base_offset: int, size: int, expected: ExpectedSeal, cached_only: bool
) -> TimeIndex:
    """The last entry of a time index, by the seal of the segment or the file; empty if neither has it.

    It is enough for lookups by timestamp and for retention, which need it of every segment. Empty, too, if
    the seal is not the expected one: then neither file is a proof.
    """
    data, seal = _read_seal(files, path, base_offset, size, cached_only)
    if not expected.admits(data, size) or (seal is not None and not seal.owner.may_be(expected.owner)):
        return TimeIndex()
    if seal is None:
        return TimeIndex.decode(read_last_entry(files, path + TIME_INDEX, TIME_ENTRY_BYTES, cached_only))
    newest = TimeIndex()
    newest.add(seal.max_timestamp, seal.max_timestamp_end - base_offset)
    return newest


def write_indexes(
    files: Files, path: str, offsets: OffsetIndex, times: TimeIndex
) -> tuple[list[File], tuple[int, int]]:
    """Replace the content of the index files; returns them, not synced yet, and their checksums."""
    contents = offsets.encode(), times.encode()
    written = [_write(files, path + OFFSET_INDEX, contents[0]), _write(files, path + TIME_INDEX, contents[1])]
    return written, (crc32c(contents[0]), crc32c(contents[1]))


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
