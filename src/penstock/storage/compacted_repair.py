"""Rewrites a damaged segment of a compacted log from its sound bytes and batches of another replica.

Each replica compacts its log by itself, so the batches of another replica may differ in size from the damaged
ones. The new segment is written beside the old one, into the directory of compaction, and replaces it in the
same way (`swap`): a crash leaves the old segment or the new one.

All methods touch the disk and are called in worker threads, one call at a time. The caller holds the lock of
rewrites of the log.
"""

from __future__ import annotations

from typing import Final

from penstock.ports import Buffer, Files
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, file_name
from penstock.storage.swap import CLEANED, write_manifest

__all__ = ["SegmentRewrite"]

_CHUNK_BYTES: Final = 1 << 20


class SegmentRewrite:
    """The rewrite of one segment from left to right: `keep` and `add` in turns, then `finish`."""

    __slots__ = ("_directory", "_files", "_new", "_old", "_segment", "size")

    def __init__(self, files: Files, log_path: str, segment: Segment) -> None:
        self._files = files
        self._segment = segment
        self._directory = f"{log_path}/{CLEANED}"
        if files.is_dir(self._directory):
            files.rmtree(self._directory)
        files.makedirs(self._directory)
        self._old = files.open(segment.path(LOG))
        self._new = files.open(f"{self._directory}/{file_name(segment.base_offset)}{LOG}", create=True)
        #: bytes of the new segment
        self.size = 0

    def keep(self, position: int, end: int) -> None:
        """Copy the bytes [position, end) of the old segment."""
        for start in range(position, end, _CHUNK_BYTES):
            self.add(self._old.pread(min(_CHUNK_BYTES, end - start), start))

    def add(self, batches: Buffer) -> None:
        self._new.append(batches)
        self.size += len(batches)

    def rewind(self, size: int) -> None:
        """Truncate the new segment to `size` bytes."""
        self._new.truncate(size)
        self.size = size

    def finish(self, index_interval_bytes: int, now_ms: int, next_offset: int) -> None:
        """Sync the new segment, which ends at `next_offset`, and its indexes."""
        old = self._segment
        new = Segment(self._files, self._directory, old.base_offset, self.size, now_ms)
        new.rebuild_indexes(index_interval_bytes)
        for aborted in old.transactions.entries():
            new.transactions.add(aborted)
        unsynced = [self._new, new.mark_compacted(next_offset), *new.save_indexes()]
        if new.transactions.file is not None:
            unsynced.append(new.transactions.file)
        for file in unsynced:
            file.sync()
        write_manifest(self._files, self._directory, [old.base_offset])
