"""New segments for offsets that are missing in a log, written from another replica's batches.

The segments are written into the directory that compaction writes to, and take their places as compaction's
result does (`swap`): a crash leaves the hole or the new segments.

Everything here touches the disk, so it is called in worker threads, one call at a time. One task at a time
rewrites a log's segments.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.ports import Files
from penstock.records.batch import LOG_OVERHEAD
from penstock.records.header_fields import BASE_OFFSET, BATCH_LENGTH, LAST_OFFSET_DELTA, MAX_TIMESTAMP
from penstock.storage.config import LogConfig
from penstock.storage.producer_loading import load_producers
from penstock.storage.producers import ProducerStates
from penstock.storage.recovery import replay_batch
from penstock.storage.recovery_report import Corruption
from penstock.storage.seals import NO_OWNER, LogOwner
from penstock.storage.segment import Segment
from penstock.storage.segment_files import SNAPSHOT
from penstock.storage.segments import Segments
from penstock.storage.swap import CLEANED, write_manifest
from penstock.storage.validation import check_replicated

__all__ = ["HoleFilling"]

_RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class HoleFilling:
    """The segments for one hole: `restart`, then `add` batches from left to right, then `finish`."""

    __slots__ = (
        "_before",
        "_config",
        "_directory",
        "_files",
        "_gaps_allowed",
        "_hole",
        "_next_offset",
        "_now_ms",
        "_owner",
        "_path",
        "_producers",
        "_segments",
        "size",
    )

    def __init__(
        self,
        files: Files,
        log_path: str,
        hole: Corruption,
        before: Iterable[tuple[int, int]],
        config: LogConfig,
        gaps_allowed: bool,
        now_ms: int,
        owner: LogOwner = NO_OWNER,
    ) -> None:
        """`before` has the base offset and size of each segment before the hole."""
        self._files = files
        self._path = log_path
        self._owner = owner
        self._directory = f"{log_path}/{CLEANED}"
        self._hole = hole
        self._before = list(before)
        self._config = config
        self._gaps_allowed = gaps_allowed
        self._now_ms = now_ms
        self._segments: list[Segment] = []
        self._producers = ProducerStates()
        self._next_offset = hole.first_offset
        #: bytes of the batches that were added
        self.size = 0

    def restart(self) -> None:
        """Begin again with the first batch, and drop the batches added so far."""
        if self._files.is_dir(self._directory):
            self._files.rmtree(self._directory)
        self._files.makedirs(self._directory)
        self._segments = []
        self._producers = self._producers_before()
        self._next_offset = self._hole.first_offset
        self.size = 0

    def _producers_before(self) -> ProducerStates:
        """The producers at the start of the hole, with the open transactions that end in it."""
        if not self._before:
            return ProducerStates()
        segments = Segments([Segment(self._files, self._path, base, size, 0) for base, size in self._before])
        names = self._files.listdir(self._path)
        snapshots = [int(name.removesuffix(SNAPSHOT)) for name in names if name.endswith(SNAPSHOT)]
        first_offset = self._hole.first_offset
        return load_producers(segments, snapshots, first_offset, self._files, self._path, self._owner)

    def add(self, batches: memoryview) -> None:
        """Append whole, checked batches behind those added before."""
        position = 0
        for header in check_replicated(batches):
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            batch = batches[position : position + size]
            segment = self._segment_for(header[BASE_OFFSET], size)
            start = segment.append(batch)
            last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
            segment.index(start, size, last_offset, header[MAX_TIMESTAMP], self._config.index_interval_bytes)
            aborted = replay_batch(self._producers, header, batch)
            if aborted is not None:
                segment.transactions.add(aborted)
            self._next_offset = last_offset + 1
            self.size += size
            position += size

    def _segment_for(self, base_offset: int, size: int) -> Segment:
        """The segment that takes a batch; a new one begins where the one before it ends."""
        active = self._segments[-1] if self._segments else None
        if (
            active is None
            or active.size + size > self._config.segment_bytes
            or base_offset - active.base_offset > _RELATIVE_OFFSET_MAX // 2
        ):
            # The batch that the log starts within begins before the hole.
            base_offset = min(self._next_offset, base_offset)
            active = Segment.create(self._files, self._directory, base_offset, self._now_ms)
            self._segments.append(active)
        return active

    def finish(self, replaced: Iterable[int]) -> list[tuple[int, int]]:
        """Bring the segments to the disk; (base offset, size) of each.

        `replaced` are base offsets of segments that go: empty ones, where the hole begins.
        """
        if not self._segments:
            base_offset = self._hole.first_offset
            self._segments.append(Segment.create(self._files, self._directory, base_offset, self._now_ms))
        ends = [segment.base_offset for segment in self._segments[1:]] + [self._hole.next_offset]
        for segment, end_offset in zip(self._segments, ends, strict=True):
            unsynced = segment.save_indexes()
            if self._gaps_allowed:
                unsynced.append(segment.mark_compacted(end_offset))
            unsynced += [file for file in (segment.file, segment.transactions.file) if file is not None]
            for file in unsynced:
                file.sync()
            segment.release()
        write_manifest(self._files, self._directory, replaced)
        return [(segment.base_offset, segment.size) for segment in self._segments]
