"""Walks the batches of a segment file by their headers, and reads without waiting for a disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from struct import Struct
from typing import Final

from penstock.model.errors import BrokerError, ErrorCode, PenstockError
from penstock.ports import File, Workers
from penstock.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC
from penstock.records.header_fields import BATCH_LENGTH, LAST_OFFSET_DELTA, MAGIC_BYTE

__all__ = [
    "ColdIndexes",
    "ColdPages",
    "ColdRemote",
    "CorruptLog",
    "batch_size",
    "find_batch",
    "plausible",
    "probe",
    "read_bytes",
    "scan",
]

_CHUNK_BYTES: Final = 4096
#: warming needs the pages, not the bytes: no more of them than this are held at a time
_WARM_BYTES: Final = 1 << 20
#: base offset, length, magic, last offset delta: the fields needed to step from batch to batch
_STEP: Final = Struct(">qi4xb6xi")
_LENGTH: Final = Struct(">8xi")
#: The distance of probes in a large range: about the kernel's read-ahead.
_PROBE_STRIDE: Final = 256 * 1024


class ColdPages(PenstockError):
    """The bytes of a read are not in memory: `load` them, or `warm` in a worker thread, then repeat it."""

    def __init__(self, file: File, position: int, size: int) -> None:
        super().__init__(f"{size} bytes at {position} of {file.path} are not in memory")
        self._file = file
        self._position = position
        self._size = size

    def warm(self) -> None:
        end = self._position + self._size
        for position in range(self._position, end, _WARM_BYTES):
            self._file.pread(min(_WARM_BYTES, end - position), position)

    async def load(self, workers: Workers) -> bool:
        """Returns false if the bytes are still missing: it takes longer than a request should wait."""
        await workers.in_thread(self.warm)
        return True


class ColdRemote(ColdPages):
    """The bytes of a read are in an archive, and not in the cache of this broker."""

    def __init__(self, name: str, load: Callable[[], Awaitable[bool]]) -> None:
        PenstockError.__init__(self, f"{name} is not in the cache")
        self._load = load

    def warm(self) -> None:
        raise AssertionError("an archive is not read by worker threads")

    async def load(self, workers: Workers) -> bool:
        return await self._load()


class ColdIndexes(ColdPages):
    """The index files of a segment cannot be used. `warm` rebuilds the indexes from the whole segment."""

    def __init__(self, file: File, size: int, rebuild: Callable[[], None]) -> None:
        super().__init__(file, 0, size)
        self._rebuild = rebuild

    def warm(self) -> None:
        self._rebuild()


class CorruptLog(BrokerError):
    """Damaged bytes in a log of this broker: the reader gets CORRUPT_MESSAGE, and the broker reports them."""

    CODE = ErrorCode.CORRUPT_MESSAGE


def read_bytes(file: File, size: int, position: int, cached_only: bool) -> bytes:
    """`pread`, or `ColdPages` where that would wait and the caller must not."""
    if not cached_only:
        return file.pread(size, position)
    data = file.pread_cached(size, position)
    if data is None:
        raise ColdPages(file, position, size)
    return data


def batch_size(file: File, position: int, cached_only: bool) -> int:
    """The size of the batch at `position`."""
    length: int = _LENGTH.unpack(read_bytes(file, _LENGTH.size, position, cached_only))[0]
    return length + LOG_OVERHEAD


def probe(file: File, position: int, size: int) -> None:
    """Raise `ColdPages` unless a range is in memory; reads one byte per stride."""
    last = position + size - 1
    for at in (*range(position, last, _PROBE_STRIDE), last):
        if not file.is_cached(at):
            raise ColdPages(file, position, size)


def plausible(header: tuple[int, ...], room: int) -> bool:
    """Returns true if `header` can start a batch of at most `room` bytes; says nothing about its checksum."""
    return (
        header[MAGIC_BYTE] == MAGIC
        and HEADER_SIZE <= header[BATCH_LENGTH] + LOG_OVERHEAD <= room
        and header[LAST_OFFSET_DELTA] >= 0
    )


def find_batch(file: File, position: int, end: int, offset: int, cached_only: bool) -> int:
    """The position of the first batch in [position, end) that reaches `offset`; `end` if none does.

    As `scan`, for the lookup that every fetch needs: several times as fast.
    """
    while position < end:
        chunk = read_bytes(file, min(_CHUNK_BYTES, end - position), position, cached_only)
        start, stop = position, position + len(chunk) - _STEP.size
        if stop < start:
            break
        while position <= stop:
            base, length, magic, delta = _STEP.unpack_from(chunk, position - start)
            if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD:
                raise CorruptLog(f"{file.path} has no batch at byte {position}")
            if base + delta >= offset:
                return position
            position += length + LOG_OVERHEAD
    if position != end:
        raise CorruptLog(f"{file.path} ends within a batch at byte {position}")
    return end


def scan(
    file: File, position: int, end: int, cached_only: bool = False
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(position, header fields) of the batches from `position` to `end`, both at batch boundaries."""
    chunk = b""
    start = position
    while position < end:
        if position + HEADER_SIZE > start + len(chunk):
            start = position
            chunk = read_bytes(file, min(_CHUNK_BYTES, end - position), position, cached_only)
            if len(chunk) < HEADER_SIZE:
                raise CorruptLog(f"{file.path} ends within a batch at byte {position}")
        header = HEADER.unpack_from(chunk, position - start)
        if not plausible(header, end - position):
            raise CorruptLog(f"{file.path} has no batch at byte {position}")
        yield position, header
        position += header[BATCH_LENGTH] + LOG_OVERHEAD
