"""The files of a segment: their names, damaged ranges, and the marker of a compacted segment.

All files of a segment have the same name, which is its base offset, and differ in their suffix.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from penstock.ports import File, Files

__all__ = [
    "COMPACTED",
    "LOG",
    "OFFSET_INDEX",
    "SEAL",
    "SNAPSHOT",
    "SUFFIXES",
    "TIME_INDEX",
    "TRANSACTION_INDEX",
    "Coverage",
    "Damage",
    "base_offset_of",
    "file_name",
    "read_marker",
    "write_marker",
]

LOG: Final = ".log"
OFFSET_INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TRANSACTION_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
#: The marker of a segment that was compacted, on this broker or on the replica that it was copied from. In or
#: behind such a segment, offsets may be missing. In every other segment a missing offset is a lost one. The
#: marker of a sealed segment has its `Coverage`. The marker of the last segment is empty, and so are those
#: that release 0.1.0 wrote.
COMPACTED: Final = ".compacted"
#: what the other files must be (`penstock.storage.seals`)
SEAL: Final = ".seal"
#: every file that may belong to a segment, the one that makes it a segment first
SUFFIXES: Final = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, SNAPSHOT, COMPACTED, SEAL)


def file_name(offset: int) -> str:
    """The name, without suffix, of the files that belong to `offset`."""
    return f"{offset:020d}"


def base_offset_of(path: str) -> int:
    """The offset that a segment's file is named after."""
    return int(path.rpartition("/")[2].partition(".")[0])


class Damage(NamedTuple):
    """Damaged bytes [position, end) of a segment; batches are sound again from `next_offset` on."""

    position: int
    end: int
    next_offset: int


class Coverage(NamedTuple):
    """The end of a sealed segment of a compacted log, which its batches need not reach, and its size."""

    next_offset: int
    size: int


def write_marker(files: Files, path: str, coverage: Coverage | None) -> File:
    """Write the marker of a compacted segment; it lasts once the file and its directory are synced."""
    file = files.open(path, create=True)
    if file.size():
        file.truncate(0)
    if coverage is not None:
        file.append(f"{coverage.next_offset} {coverage.size}\n".encode())
    return file


def read_marker(files: Files, path: str) -> Coverage | None:
    """The content of the marker of a compacted segment; None if it is empty, torn or missing."""
    try:
        line, newline, _ = files.read(path).partition(b"\n")
        next_offset, size = line.split()
    except (FileNotFoundError, ValueError):
        return None
    return Coverage(int(next_offset), int(size)) if newline else None
