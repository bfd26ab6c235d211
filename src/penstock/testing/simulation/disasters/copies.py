"""Which records the disks of a simulated cluster hold, read from the files and not from any broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import error
from typing import Final

from penstock.model.errors import PenstockError
from penstock.records.batch import CRC_START, HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from penstock.records.record import iter_batches, iter_records
from penstock.storage.memory import Directory
from penstock.testing.disk import FaultyDisk
from penstock.testing.simulation.disasters.tampering import content, log_files, segments

__all__ = [
    "covered",
    "damaged_offset",
    "end_offset",
    "intact_batches",
    "last_batch",
    "values_in",
    "values_on",
]

#: where files lie that a broker has decided to delete
_DELETED: Final = "/deleted/"


def values_in(disk: FaultyDisk, folder: str) -> set[bytes]:
    """The values of all records in one partition folder."""
    contents = (content(disk, path) for path in segments(disk, folder))
    return set(_values(contents))


def values_on(disk: FaultyDisk) -> set[bytes]:
    """The values of all records on a disk: in logs and in quarantine, but not in folders to be deleted."""
    return set(_values(_kept(disk.root)))


def _kept(root: Directory) -> Iterator[bytes]:
    for path, inode in log_files(root):
        if _DELETED not in path:
            yield bytes(inode.content)


def end_offset(disk: FaultyDisk, folder: str) -> int:
    """Behind the last intact batch in a partition folder; 0 if there is none."""
    for path in reversed(segments(disk, folder)):
        ends = [header.next_offset for _, header in intact_batches(content(disk, path))]
        if ends:
            return max(ends)
    return 0


def last_batch(disk: FaultyDisk, folder: str) -> tuple[int, int]:
    """(leader epoch, end) of the last intact batch in a partition folder; (-1, 0) if there is none."""
    for path in reversed(segments(disk, folder)):
        batches = [
            (header.leader_epoch, header.next_offset) for _, header in intact_batches(content(disk, path))
        ]
        if batches:
            return batches[-1]
    return -1, 0


def damaged_offset(disk: FaultyDisk, folder: str) -> int | None:
    """The first offset behind which a partition folder has bytes that are no intact batch; None for none."""
    for path in segments(disk, folder):
        data, offset, position = content(disk, path), int(path.rpartition("/")[2][:20]), 0
        while position < len(data):
            header = _intact(data, position) if position + HEADER_SIZE <= len(data) else None
            if header is None:
                return offset
            offset, position = header.next_offset, position + header.size
    return None


def covered(
    disk: FaultyDisk, paths: Iterable[str], begin: int = 0, end: int | None = None
) -> list[tuple[str, int, int]]:
    """Ranges (path, begin, end) of batches with offsets from `begin` to `end` that their checksums cover."""
    return [
        (path, position + CRC_START, position + header.size)
        for path in paths
        for position, header in iter_batches(content(disk, path))
        if header.base_offset >= begin and (end is None or header.next_offset <= end)
    ]


def _values(contents: Iterable[bytes]) -> Iterator[bytes]:
    for each in contents:
        for position, header in intact_batches(each):
            if not header.is_control:
                for record in iter_records(each[position : position + header.size]):
                    yield record.value or b""


def intact_batches(data: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every intact batch, also behind damage."""
    position = 0
    while position + HEADER_SIZE <= len(data):
        header = _intact(data, position)
        if header is None:
            position += 1
        else:
            yield position, header
            position += header.size


def _intact(data: bytes, position: int) -> BatchHeader | None:
    try:
        header = read_header(data, position)
        if header.magic != MAGIC or not HEADER_SIZE <= header.size <= len(data) - position:
            return None
        return header if crc_matches(data[position : position + header.size], header) else None
    except (error, PenstockError):
        return None
