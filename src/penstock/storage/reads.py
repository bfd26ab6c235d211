"""Reads and lookups of a log, in both of its tiers: the broker's own segments, and an archive below them.

They run in the event loop's thread. With `cached_only` they raise ColdPages instead of waiting for the disk,
and are repeated once the pages are loaded. Reads of the archive always do.
"""

from __future__ import annotations

from penstock.ports import FileRange
from penstock.storage.appending import Appender
from penstock.storage.health import Health
from penstock.storage.index_files import OtherSegment
from penstock.storage.lookup import DatedBatch, aborted_transactions, batch_at_or_after, latest_batch
from penstock.storage.recovery_report import RecoveryReport
from penstock.storage.remote_tier import RemoteTier, all_aborted, archive_of, latest_of, read_remote
from penstock.storage.scan import ColdPages, CorruptLog
from penstock.storage.segments import Segments
from penstock.storage.store import SegmentStore

__all__ = ["LogReads"]


class LogReads:
    """The reading part of `Log`, which owns all of these attributes."""

    __slots__ = (
        "_store",
        "appender",
        "end_offset",
        "file_lost",
        "health",
        "local_log_start_offset",
        "log_start_offset",
        "path",
        "recovery",
        "remote",
        "segments",
    )

    path: str
    segments: Segments
    health: Health
    recovery: RecoveryReport
    appender: Appender
    log_start_offset: int
    local_log_start_offset: int
    end_offset: int
    remote: RemoteTier | None
    file_lost: bool
    _store: SegmentStore

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper: int,
        at_least_one: bool = True,
        cached_only: bool = False,
    ) -> FileRange | None:
        """Batches of one segment, from the one that holds `offset` to before `upper`, up to `max_bytes`.

        The last batch may be cut, unless it is a recent one. The first never is: where it is larger than
        `max_bytes`, it is returned with `at_least_one`, and nothing is without. None if nothing is there or
        fits. With `cached_only`, `ColdPages` is raised where the range would have to come from the disk.
        Bytes that are known to be damaged are a `CorruptLog`.
        """
        end_offset = self.end_offset
        if offset < self.local_log_start_offset or offset > end_offset:
            remote = read_remote(self, offset, max_bytes, upper, at_least_one)
            if not isinstance(remote, int):
                return remote
            offset = remote
        if self.health.offline is not None:
            self.health.check()
        if offset >= upper:
            return None
        damaged_from = min(upper, self.recovery.sound_end(offset)) if self.recovery.corruption else upper
        try:
            found = self._store.read(offset, max_bytes, damaged_from, end_offset, at_least_one, cached_only)
        except OSError as e:
            self.file_lost |= isinstance(e, FileNotFoundError)
            raise self.health.failed(e, f"cannot read {self.path}") from e
        except OtherSegment as e:
            self.segments.exchanged |= {e.base_offset}
            raise
        if found is None and damaged_from < upper and at_least_one:
            # Compaction left nothing before the damage: a reader must not wait there, nor skip it.
            self.recovery.sound_end(damaged_from)
        return found

    def tail(self, offset: int) -> list[FileRange]:
        """The bytes that `truncate_to(offset)` removes, whatever is in them; none in memory is copied."""
        with self.health.disk(f"read {self.path}"):
            segment, position, _ = self._store.cut_point(self.recovery.end_before(offset))
            found = [FileRange(segment.open_file(), position, segment.size - position)]
            for each in self.segments.since(segment.base_offset)[1:]:
                found.append(FileRange(each.open_file(), 0, each.size))
            return found

    def newest(self, offset: int) -> bytes | None:
        """The bytes from `offset` to the end, if they are the last append of a client and few, else None.

        No transaction is aborted in these batches, so a response to them lists none.
        """
        first, end, batches = self.appender.newest
        if first != offset or end != self.end_offset or offset < self.log_start_offset:
            return None
        if self.health.offline is not None:
            self.health.check()
        return batches

    def bytes_between(self, offset: int, upper: int) -> int | None:
        """Size of the batches that `read` finds in [offset, upper) without a limit; None if that is a lot.

        That is: in other segments than the last, or not in memory.
        """
        if offset >= upper:
            return 0
        try:
            return self._store.bytes_between(offset, upper, self.end_offset)
        except (OSError, ColdPages, CorruptLog):
            return None

    def offset_behind(self, offset: int, found: FileRange) -> int:
        """An offset at or behind the end of the read that began at `offset`; a near one, by the index."""
        if offset < self.local_log_start_offset:
            return archive_of(self).offset_behind(offset, found)
        return self._store.offset_behind(offset, found, self.end_offset)

    def aborted_transactions(
        self, start: int, upper: int, *, cached_only: bool = False
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that reach into [start, upper)."""
        with self.health.disk(f"read {self.path}"):
            found = aborted_transactions(self.segments, start, upper, cached_only)
        return all_aborted(self, start, upper, found)

    def batch_at_or_after(
        self, timestamp: int, start: int, *, cached_only: bool = False
    ) -> DatedBatch | None:
        """The batch that may have the first record from `start` on with `timestamp` or a later one."""
        if start < self.local_log_start_offset:
            found = archive_of(self).batch_at_or_after(timestamp, max(start, self.log_start_offset))
            if found is not None and found.next_offset <= self.local_log_start_offset:
                return found
        with self.health.disk(f"read {self.path}"):
            return batch_at_or_after(self.segments, timestamp, start, cached_only)

    def latest_batch(self, start: int, *, cached_only: bool = False) -> DatedBatch | None:
        """The batch that may have the first record from `start` on with the largest timestamp of the log."""
        with self.health.disk(f"read {self.path}"):
            found = latest_batch(self.segments, start, cached_only)
        return latest_of(self, start, found)
