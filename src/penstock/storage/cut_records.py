"""Committed records that crash recovery cuts off: their bytes are kept in files that no log reads.

Recovery ends a log before the first bytes that were never written, even if sound batches follow (`recovery`).
Batches below the recorded high watermark were committed, and this replica may have the last copy of them. So
they are copied before their segment is truncated, and later segments are renamed instead of being removed:

    <partition folder>/<first offset>.log.cut.N

Without the suffix `.cut.N` such a file is a segment that `penstock log dump` prints.

Invariant: a copy is on the disk before the segment is truncated. If it cannot be written, the log is not
opened.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from penstock.ports import File, Files
from penstock.records.header_fields import BASE_OFFSET
from penstock.storage.batch_search import BatchSearch
from penstock.storage.recovery_report import RecoveryReport
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, file_name

__all__ = ["CUT", "CutRecords"]

#: in the names of files with committed records that recovery has cut off
CUT: Final = ".cut"
_CHUNK_BYTES: Final = 4 * 1024 * 1024


class _CommittedSearch(BatchSearch):
    """Finds the first batch behind damage whose checksum holds and whose offset is below a high watermark."""

    def __init__(self, next_offset: int, high_watermark: int) -> None:
        super().__init__(high_watermark)
        self.next_offset = next_offset

    def find(self, file: File, position: int, end: int) -> tuple[int, int] | None:
        """The position and the base offset of the batch."""
        return self._next_sound(file, position, end, end)

    def _believable(
        self, file: File, position: int, end: int, header: tuple[int, ...], at_least: int
    ) -> bool:
        return at_least <= header[BASE_OFFSET] < self._recovery_point


class CutRecords:
    """Keeps the committed records that the recovery of one log cuts off."""

    def __init__(self, files: Files, path: str, high_watermark: int, report: RecoveryReport) -> None:
        """`high_watermark` is the recorded one; 0 if none is."""
        self._files = files
        self._path = path
        self.high_watermark = high_watermark
        self._report = report

    def before_truncation(self, file: File, position: int, next_offset: int) -> None:
        """Copy the end of a segment, from the first committed batch on, before it is cut at `position`."""
        if next_offset >= self.high_watermark:
            return
        end = file.size()
        found = _CommittedSearch(next_offset, self.high_watermark).find(file, position, end)
        if found is None:
            return
        start, base_offset = found
        path = self._free_path(base_offset)
        try:
            self._copy(file, start, end, path)
        except OSError:
            with suppress(FileNotFoundError):
                self._files.remove(path)
            raise
        self._report.kept.append(path)

    def _copy(self, file: File, start: int, end: int, path: str) -> None:
        copy = self._files.open(path, create=True)
        try:
            for at in range(start, end, _CHUNK_BYTES):
                copy.append(file.pread(min(_CHUNK_BYTES, end - at), at))
            copy.sync()
        finally:
            copy.close()
        self._files.sync_dir(self._path)

    def keep(self, segment: Segment) -> None:
        """Rename the file of a dropped segment if it has committed records; durable after `sync_dir`."""
        if segment.base_offset >= self.high_watermark or not segment.size:
            return
        path = self._free_path(segment.base_offset)
        segment.release()
        self._files.rename(segment.path(LOG), path)
        self._report.kept.append(path)

    def _free_path(self, base_offset: int) -> str:
        """A path that no earlier crash has used."""
        stem, number = f"{self._path}/{file_name(base_offset)}{LOG}{CUT}", 1
        while self._files.exists(f"{stem}.{number}"):
            number += 1
        return f"{stem}.{number}"
