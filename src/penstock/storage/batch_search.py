"""Whole batches of a segment, and the search for sound ones behind damage."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from penstock.ports import File
from penstock.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
)
from penstock.records.checksum import crc32c
from penstock.records.header_fields import (
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    LAST_OFFSET_DELTA,
)
from penstock.storage.scan import plausible

__all__ = ["OFFSETS_MAX", "BatchSearch", "whole_batches", "written_end"]

_CHUNK_BYTES: Final = 4 * 1024 * 1024
OFFSETS_MAX: Final = 2**31
#: the unit that a disk writes as a whole or not at all
_SECTOR_BYTES: Final = 512
#: a shorter piece at the end of a segment says nothing by being zeros: values may end with some, records do
_LAST_PIECE_BYTES: Final = 64
#: bytes at a batch's start that must be read to recognise a candidate
_CANDIDATE_BYTES: Final = 17
_NEVER_WRITTEN: Final = bytes(_SECTOR_BYTES)


def whole_batches(file: File, position: int, end: int) -> Iterator[tuple[int, tuple[int, ...], memoryview]]:
    """(position, header fields, bytes) of each batch whose checksum holds; ends before the first without."""
    chunk = memoryview(b"")
    start = position
    while position + HEADER_SIZE <= end:
        if position + HEADER_SIZE > start + len(chunk):
            start = position
            chunk = memoryview(file.pread(min(_CHUNK_BYTES, end - position), position))
            if len(chunk) < HEADER_SIZE:
                return
        header = HEADER.unpack_from(chunk, position - start)
        if not plausible(header, end - position):
            return
        size = header[BATCH_LENGTH] + LOG_OVERHEAD
        if position + size > start + len(chunk):
            start = position
            chunk = memoryview(file.pread(max(min(_CHUNK_BYTES, end - position), size), position))
        batch = chunk[position - start : position - start + size]
        if crc32c(batch[CRC_START:]) != header[CRC]:
            return
        yield position, header, batch
        position += size


def written_end(file: File, position: int, end: int) -> int:
    """The position of the first sector from `position` on that was never written; `end` if there is none.

    A sector that lies only partly in [position, end) counts with that part, if the part is longer than the
    zeros that may be at the start or the end of a sound batch. A file that knows it itself is asked.
    """
    known = file.never_written(position, end)
    if known is not None:
        return known
    aligned = position + -position % _SECTOR_BYTES
    if aligned - position >= LOG_OVERHEAD and not any(file.pread(min(aligned, end) - position, position)):
        return position
    for start in range(aligned, end, _CHUNK_BYTES):
        chunk = memoryview(file.pread(min(_CHUNK_BYTES, end - start), start))
        for at in range(0, len(chunk), _SECTOR_BYTES):
            sector = chunk[at : at + _SECTOR_BYTES]
            if len(sector) >= _LAST_PIECE_BYTES and sector == _NEVER_WRITTEN[: len(sector)]:
                return start + at
    return end


class BatchSearch:
    """Finds the batches of a segment that belong to the log, at the right offsets."""

    def __init__(self, recovery_point: int) -> None:
        self._recovery_point = recovery_point
        #: behind the last batch that was found
        self.next_offset = 0
        #: of the segment that is being walked: where its offsets must end at the latest, whether it is the
        #: log's last one, and whether some may be missing
        self._limit = 0
        self._open_end = False
        self._gaps_allowed = False

    def _is_left_over(self, header: tuple[int, ...], next_offset: int) -> bool:
        """Returns true if a batch was truncated before the crash, and the disk still has it."""
        return False

    def _follows(
        self, file: File, position: int, end: int, header: tuple[int, ...], next_offset: int
    ) -> bool:
        """Returns true if the whole batch at `position` may come next, `next_offset` being free."""
        return not self._is_left_over(header, next_offset) and (
            header[BASE_OFFSET] == next_offset
            or (self._gaps_allowed and self._believable(file, position, end, header, next_offset))
        )

    def _believable(
        self, file: File, position: int, end: int, header: tuple[int, ...], at_least: int
    ) -> bool:
        """Returns true if a sound batch behind a gap is where its offset says, which no checksum covers.

        The batch behind it has to follow; behind the last one comes the next segment or the recovery point.
        """
        next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        behind = position + header[BATCH_LENGTH] + LOG_OVERHEAD
        if header[BASE_OFFSET] < at_least or next_offset > self._limit:
            return False
        following = file.pread(HEADER_SIZE, behind)
        if len(following) < HEADER_SIZE or behind >= end:
            return self._gaps_allowed or next_offset in (self._limit, self._recovery_point)
        base: int = HEADER.unpack(following)[0]
        return base == next_offset or (self._gaps_allowed and base > next_offset)

    def _next_sound(self, file: File, position: int, end: int, search_end: int) -> tuple[int, int] | None:
        """(position, base offset) of the first batch behind the damage at `position` that can be believed.

        It starts before `search_end`; the segment ends at `end`.
        """
        # Offsets in one segment share their high half; that and the magic byte make candidates rare.
        high = (self.next_offset >> 32).to_bytes(4, "big")
        candidate = re.compile(b"(?=%s.{12}\\x%02x)" % (re.escape(high), MAGIC), re.DOTALL)
        for start in range(position + 1, search_end, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, search_end - start) + _CANDIDATE_BYTES - 1
            for match in candidate.finditer(file.pread(size, start)):
                at = start + match.start()
                header = _header(file, at, end)
                if (
                    header is not None
                    and (
                        self._believable(file, at, end, header, self.next_offset)
                        or self._ends_log(file, position, at, end, header)
                    )
                    and not self._is_left_over(header, self.next_offset)
                    # Last: bytes that only look like a batch may have a length up to the end of the segment.
                    and _checksum_holds(file, at, header)
                ):
                    return at, header[BASE_OFFSET]
        return None

    def _ends_log(self, file: File, damaged: int, position: int, end: int, header: tuple[int, ...]) -> bool:
        """Returns true if a sound batch is the last one, and the header of the damaged one agrees."""
        size, next_offset = header[BATCH_LENGTH] + LOG_OVERHEAD, self.next_offset
        return (
            self._open_end
            and position + size == end
            and header[BASE_OFFSET]
            == next_offset + HEADER.unpack(file.pread(HEADER_SIZE, damaged))[LAST_OFFSET_DELTA] + 1
        )


def _header(file: File, position: int, end: int) -> tuple[int, ...] | None:
    """The header of a batch that may be at `position`."""
    data = file.pread(HEADER_SIZE, position)
    header = HEADER.unpack(data) if len(data) == HEADER_SIZE else None
    return header if header is not None and plausible(header, end - position) else None


def _checksum_holds(file: File, position: int, header: tuple[int, ...]) -> bool:
    checked = file.pread(header[BATCH_LENGTH] + LOG_OVERHEAD - CRC_START, position + CRC_START)
    return bool(crc32c(checked) == header[CRC])
