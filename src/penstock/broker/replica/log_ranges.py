"""Reads the batches of a log in pieces that neither hold the event loop nor much memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from typing import Final, NamedTuple

from penstock.ports import FileRange, Workers
from penstock.records.batch import HEADER_SIZE, BatchHeader, read_header
from penstock.storage.log import Log

__all__ = ["LogRange", "log_ranges", "pieces"]

_RANGE_BYTES: Final = 1 << 20


class LogRange(NamedTuple):
    """Whole batches of one segment, next to each other."""

    bytes: FileRange
    headers: list[BatchHeader]

    @property
    def records(self) -> int:
        """The records of producers among them: control batches have none."""
        return sum(header.record_count for header in self.headers if not header.is_control)


async def log_ranges(
    log: Log, start: int, end: int, workers: Workers, ranges_max: int | None = None
) -> AsyncIterator[LogRange]:
    """The batches from the one that has `start` on to before `end`.

    Raises CorruptLog and OSError as `Log.read` does.
    """
    for nth in count(1):
        if start >= end:
            return
        found = log.read(start, _RANGE_BYTES, upper=end)
        if found is None:
            return
        headers = await workers.in_thread(_headers, found)
        if not headers:
            return
        size = sum(header.size for header in headers)
        yield LogRange(FileRange(found.file, found.position, size), headers)
        if nth == ranges_max:
            return
        start = headers[-1].next_offset


def pieces(found: FileRange) -> Iterator[FileRange]:
    """A range in pieces that do not need much memory."""
    for start in range(0, found.size, _RANGE_BYTES):
        yield FileRange(found.file, found.position + start, min(_RANGE_BYTES, found.size - start))


def _headers(found: FileRange) -> list[BatchHeader]:
    """The headers of the whole batches: the last batch may be cut."""
    data, position, headers = found.read(), 0, []
    while len(data) - position >= HEADER_SIZE:
        header = read_header(data, position)
        if header.size < HEADER_SIZE or position + header.size > len(data):
            break
        headers.append(header)
        position += header.size
    return headers
