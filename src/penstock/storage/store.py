"""The segments of one log on disk: writes, finds, rolls, truncates and removes batches.

It knows positions and files; `log` knows producers, leader epochs and watermarks. It raises the operating
system's `OSError`. Every method either does all of its work or leaves the segments as they were.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Container, Iterable
from typing import Final

from penstock.ports import FileRange, Files, Rng
from penstock.records.header_fields import BASE_OFFSET
from penstock.storage.chain import BrokenChain, sound_end
from penstock.storage.config import LogConfig
from penstock.storage.first_timestamp import checked_first_timestamp
from penstock.storage.flush import ClosedFile, Unsynced
from penstock.storage.producers import ProducerStates
from penstock.storage.removal import Removal, set_aside
from penstock.storage.roll_snapshots import RollSnapshots
from penstock.storage.scan import CorruptLog, batch_size, probe, scan
from penstock.storage.sealing import seal_segment
from penstock.storage.seals import NO_OWNER, ExpectedSeal, LogOwner
from penstock.storage.segment import NOT_WORKED_OUT, Segment
from penstock.storage.segment_files import LOG
from penstock.storage.segments import SegmentCache, Segments

__all__ = ["SegmentStore"]

_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
#: The newest bytes of the last segment, where this process wrote them: they are in memory, no need to probe.
_HOT_TAIL_BYTES: Final = 16 * 1024 * 1024


class SegmentStore:
    """Segments, and which of their files have unsynced bytes."""

    __slots__ = (
        "_cache",
        "_compact",
        "_index_bytes_max",
        "_jitter_ms_max",
        "_rng",
        "_roll_after_ms",
        "_segment_bytes",
        "_segment_ms_max",
        "directory_dirty",
        "files",
        "owner",
        "path",
        "segments",
        "snapshots",
        "unsynced",
    )

    def __init__(
        self,
        files: Files,
        path: str,
        segments: Segments,
        cache: SegmentCache,
        rng: Rng | None,
        owner: LogOwner = NO_OWNER,
    ) -> None:
        self.files = files
        #: the partition that seals and snapshots name
        self.owner = owner
        self.path = path
        self.segments = segments
        self._cache = cache
        self._rng = rng
        #: files of sealed segments that no sync has been planned for; holding them keeps them open
        self.unsynced: list[Unsynced] = []
        #: true if names in the directory changed since the last planned sync
        self.directory_dirty = False
        self.snapshots = RollSnapshots(files, path, owner)

    def reconfigure(self, config: LogConfig) -> None:
        self._compact = config.compact
        self._segment_bytes = config.segment_bytes
        self._segment_ms_max = config.segment_ms_max
        self._index_bytes_max = config.segment_index_bytes
        self._jitter_ms_max = min(config.segment_jitter_ms, config.segment_ms)
        self._draw_jitter()
        self.segments.active.roll_beyond = NOT_WORKED_OUT
        self.segments.active.limit_indexes(self._index_bytes_max)

    def _draw_jitter(self) -> None:
        """Segments of many partitions that started together must not all roll together."""
        jitter = self._rng.uniform(0, self._jitter_ms_max) if self._rng and self._jitter_ms_max else 0
        self._roll_after_ms = self._segment_ms_max - int(jitter)

    # -- writing

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int) -> bool:
        """Returns true if `size` bytes that end with `last_offset` have to go to a new segment."""
        segment = self.segments.active
        if last_offset - segment.base_offset > _RELATIVE_OFFSET_MAX:
            return True
        if not segment.size:
            return False
        return (
            segment.size + size > self._segment_bytes
            or segment.full
            or (max_timestamp > segment.roll_beyond and self._too_old(segment, max_timestamp, now_ms))
        )

    def _too_old(self, segment: Segment, max_timestamp: int, now_ms: int) -> bool:
        """Returns true if records up to `max_timestamp` would make `segment` span more time than it may."""
        first = segment.first_timestamp
        if first is None:
            first = segment.first_timestamp = checked_first_timestamp(segment)
        if first is None:
            # The scrubber checks sealed segments only.
            return True
        if first < 0:
            return now_ms - segment.created_ms > self._roll_after_ms
        segment.roll_beyond = first + self._roll_after_ms
        return max_timestamp > segment.roll_beyond

    def roll(self, end_offset: int, first_offset: int, now_ms: int, producers: ProducerStates) -> None:
        """Seal the last segment, which ends at `end_offset`, and start one that can take `first_offset`."""
        sealed = self.segments.active
        # Only a replica of a compacted log meets such a gap: its leader has nothing in between.
        gap = first_offset - end_offset > _RELATIVE_OFFSET_MAX // 2
        base_offset = first_offset if gap else end_offset
        if sealed.base_offset == base_offset:
            assert not sealed.size, "a segment cannot follow itself"
            return
        written = sealed.save_indexes()
        if gap or sealed.is_compacted:
            written.append(sealed.mark_compacted(base_offset))
        snapshot = None
        deferred = self.snapshots.is_deferred(producers)
        if not deferred:
            snapshot, file = self.snapshots.write(base_offset, producers)
            written.append(file)
        seal = seal_segment(sealed, self.files, self.owner, base_offset, snapshot)
        if seal is not None:
            written.append(seal)
        segment = Segment.create(self.files, self.path, base_offset, now_ms)
        written.append(sealed.open_file())
        if sealed.transactions.file is not None:
            written.append(sealed.transactions.file)
        self.unsynced += written
        self.directory_dirty = True
        segment.limit_indexes(self._index_bytes_max)
        self.segments.push(segment)
        self._cache.used(sealed)
        sealed.recent.clear()
        self._draw_jitter()
        if deferred:
            self.snapshots.defer(base_offset, producers)

    def allow_gaps(self) -> None:
        """Offsets are missing in the last segment, and rightly so: they are missing where it comes from."""
        self.unsynced.append(self.segments.active.mark_compacted())
        self.directory_dirty = True

    def unsynced_files(self, grown: bool) -> list[Unsynced]:
        """The files with unsynced bytes, each once; with `grown` the last segment is one of them."""
        files, self.unsynced = self.unsynced, []
        if grown:
            active = self.segments.active
            # One that was closed for lack of descriptors is open only while a worker thread syncs it.
            files.append(active.file or ClosedFile(self.files, active.path(LOG)))
            if active.transactions.file is not None:
                files.append(active.transactions.file)
        return files

    # -- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        upper: int,
        end_offset: int,
        at_least_one: bool,
        cached_only: bool,
    ) -> FileRange | None:
        """See `Log.read`; `end_offset` is where the log ends. Longer than others: this is the hot path."""
        segments = self.segments
        segment = segments.holding(offset)
        try:
            position = segment.find(offset, cached_only)
            while position >= segment.size:
                # Compaction may have left nothing of the rest: the next segment has the next record.
                if segment.size and segment.base_offset <= offset and not self._has_gaps(segment):
                    raise BrokenChain(segment.path(LOG), position)
                following = segments.after(segment)
                if following is None or following.base_offset >= upper:
                    return None
                segment = following
                position = segment.find(offset, cached_only)
            size = self._readable_end(segment, upper, end_offset, cached_only) - position
        except CorruptLog:
            segments.broken |= {segment.base_offset}
            raise
        active = segment is segments.active
        file = segment.file or segment.open_file()
        if size > max_bytes:
            if offset in segment.recent:
                size = _whole_batches(segment, position, max_bytes)
                if not size and at_least_one:
                    size = batch_size(file, position, cached_only)
            else:
                size = max_bytes
                first = batch_size(file, position, cached_only)
                if size < first:
                    size = first if at_least_one else 0
        hot = segment.size
        if position < segment.size_found:
            size = min(size, self._sound_size(segment, offset, position, max(size, 1), cached_only))
        elif active:
            hot -= _HOT_TAIL_BYTES
        if not active:
            self._cache.used(segment)
        if size <= 0:
            return None
        if cached_only and position < hot:
            probe(file, position, size)
        return FileRange(file, position, size)

    def _sound_size(self, segment: Segment, offset: int, position: int, size: int, cached_only: bool) -> int:
        """How many bytes from `position` on are batches that follow each other; BrokenChain if none are.

        For bytes that were there when the log was opened.
        """
        end = min(position + size, segment.size_found)
        try:
            sound = sound_end(segment, offset, position, end, self._compact, cached_only)
        except BrokenChain:
            self.segments.broken |= {segment.base_offset}
            raise
        return size if sound == end else sound - position

    def _has_gaps(self, segment: Segment) -> bool:
        """Returns true if compaction may have left offsets of a segment out."""
        return self._compact or segment.is_compacted

    def _readable_end(self, segment: Segment, upper: int, end_offset: int, cached_only: bool) -> int:
        """The end position of the batches of `segment` that are wholly below `upper`."""
        if upper >= end_offset:
            return segment.size
        following = self.segments.after(segment)
        if following is not None and upper >= following.base_offset:
            return segment.size
        return segment.find(upper, cached_only)

    def bytes_between(self, offset: int, upper: int, end_offset: int) -> int | None:
        """See `Log.bytes_between`."""
        segment = self.segments.active
        if offset < segment.base_offset:
            return None
        return self._readable_end(segment, upper, end_offset, True) - segment.find(offset, True)

    def offset_behind(self, offset: int, found: FileRange, end_offset: int) -> int:
        """See `Log.offset_behind`."""
        segment = self.segments.holding(offset)
        while segment.file is not found.file:
            following = self.segments.after(segment)
            if following is None:
                return end_offset
            segment = following
        offsets = segment.offsets()
        slot = bisect_left(offsets.positions, found.position + found.size)
        if slot < len(offsets):
            return segment.base_offset + offsets.ends[slot] + 1
        following = self.segments.after(segment)
        return following.base_offset if following is not None else end_offset

    # -- removing

    def remove(self, segments: list[Segment]) -> list[Removal]:
        """Let go of `segments`; at least one other must remain."""
        self.segments.replace(segments, [])
        for segment in segments:
            self._cache.forget(segment)
        self.directory_dirty = True
        return set_aside(self.files, segments)

    def cut_point(self, offset: int) -> tuple[Segment, int, int]:
        """The point of a truncation to `offset`: segment, position, and the new end of the log."""
        segment = self.segments.holding(offset)
        position = segment.find(offset)
        if position == segment.size or any(position == damage.position for damage in segment.damage):
            return segment, position, offset
        _, header = next(scan(segment.open_file(), position, segment.size))
        return segment, position, header[BASE_OFFSET]

    def prepare_cut(self, segment: Segment) -> None:
        """Open and load what `cut` uses: without a descriptor, nothing is changed."""
        segment.open_file()
        segment.offsets()
        segment.transactions.entries()

    def cut(self, segment: Segment, position: int, end_offset: int) -> None:
        """Drop everything from a `cut_point` on; its segment stays, perhaps empty, and is the last now."""
        dropped = [
            other for other in self.segments.since(end_offset) if other.base_offset > segment.base_offset
        ]
        # From the end backwards: a crash on the way leaves a log that is shorter, never one with a hole.
        dropped.reverse()
        if dropped:
            for removal in self.remove(dropped):
                removal.delete()
            # If they came back after a crash that the cut below survives, there would be a hole before them.
            self.files.sync_dir(self.path)
        self._cache.forget(segment)
        segment.damage = [damage for damage in segment.damage if damage.end <= position]
        segment.cut(position, end_offset)
        if segment.is_compacted:
            # It takes appends again: the marker written when it was sealed is no longer right.
            self.unsynced.append(segment.mark_compacted())
        segment.limit_indexes(self._index_bytes_max)
        self.unsynced.append(segment.open_file())

    def restart(self, base_offset: int, now_ms: int) -> None:
        """Drop everything and start over, empty, at `base_offset`."""
        old = list(reversed(list(self.segments)))
        for segment in old:
            self._cache.forget(segment)
        for removal in set_aside(self.files, old):
            removal.delete()
        segment = Segment.create(self.files, self.path, base_offset, now_ms)
        segment.limit_indexes(self._index_bytes_max)
        self.segments.replace(old, [segment])
        # After a crash the old segments must not come back before, or instead of, batches written later.
        self.files.sync_dir(self.path)

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Have `new`, whose files are in place of those of `old`, found from now on."""
        for segment in old:
            self._cache.forget(segment)
        self.segments.replace(old, new)
        self.directory_dirty = True

    def replace_at(self, old: Container[int], new: Iterable[tuple[int, int]], now_ms: int) -> None:
        """Replace the segments at the offsets `old`; `new` has (base offset, size) of each segment."""
        self.replace(
            [segment for segment in self.segments if segment.base_offset in old],
            [self._segment(base, size, now_ms) for base, size in new],
        )

    def _segment(self, base_offset: int, size: int, now_ms: int) -> Segment:
        segment = Segment(self.files, self.path, base_offset, size, now_ms)
        segment.expected_seal = ExpectedSeal(self.owner)
        return segment

    def lose(self, segment: Segment, now_ms: int) -> None:
        """Leave out a segment whose file is gone; an empty last one is created again."""
        new = []
        if segment is self.segments.active:
            assert not segment.size, "a last segment with batches is rolled first"
            new.append(Segment.create(self.files, self.path, segment.base_offset, now_ms))
            new[0].limit_indexes(self._index_bytes_max)
        self.replace([segment], new)
        segment.release()

    def release(self) -> None:
        """Let go of every open file."""
        self.unsynced = []
        for segment in self.segments:
            self._cache.forget(segment)
            segment.release()


def _whole_batches(segment: Segment, position: int, size: int) -> int:
    """How much of `size` bytes from `position` on to send: whole batches, 0 if the first is larger.

    The batch at `position` is a recent one, and all behind it are. Bytes of a batch that does not fit would
    be sent for nothing, and then again.
    """
    end, cut = position + size, position
    for start in segment.recent.values():
        if start > end:
            break
        if start > position:
            cut = start
    return cut - position
