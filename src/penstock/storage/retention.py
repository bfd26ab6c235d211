"""Retention: finds segments that are too old, too many, or wholly before the log start.

Segments go from the oldest on, whole, and only below the high watermark. Their age is that of their youngest
record, by its own timestamp; segments without timestamps go by when they were last written. A time index that
makes a segment too old has to agree with the batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, Protocol

from penstock.ports import Clock, Files
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA, MAX_TIMESTAMP
from penstock.storage.appending import Appender
from penstock.storage.config import LogConfig
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.health import Health
from penstock.storage.removal import Removal
from penstock.storage.scan import CorruptLog, scan
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG
from penstock.storage.segments import Segments
from penstock.storage.store import SegmentStore
from penstock.timekeeping.rounds import Survey

__all__ = ["Retention", "expired_segments", "local_config", "segments_before"]

#: the value of `local.retention.ms` and `local.retention.bytes` that follows the retention of the whole log
_FOLLOWS: Final = -2


class ExpiringLog(Protocol):
    """A log as its retention uses it."""

    @property
    def config(self) -> LogConfig: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def opened_end(self) -> int: ...
    @property
    def retention_changed(self) -> bool: ...
    @property
    def leader_epochs(self) -> LeaderEpochs: ...
    @property
    def appender(self) -> Appender: ...
    @property
    def save_start(self) -> Callable[[], None] | None: ...
    @property
    def saved_start(self) -> int: ...
    @property
    def local_log_start_offset(self) -> int: ...
    @property
    def saved_local_start(self) -> int: ...

    def start_at(self, offset: int) -> None: ...


class Retention:
    """Expires the segments of one log. Owned by its `Log`.

    Invariant: a segment is removed only once the log start behind it is on the disk.
    """

    __slots__ = ("_clock", "_health", "_log", "_store")

    def __init__(self, log: ExpiringLog, store: SegmentStore, clock: Clock, health: Health) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._health = health

    def apply(self, now_ms: int | None, *, cached_only: bool = False) -> list[Removal]:
        """Expire segments, save the log start and remove them; `delete` each in a worker thread, later.

        It may wait for the disk. A broker with many logs calls the steps one by one, and saves all log starts
        at once.
        """
        if not self.expire(now_ms, cached_only=cached_only):
            return []
        if self._log.save_start is not None:
            self._log.save_start()
        return self.remove_expired()

    def expire(self, now_ms: int | None, *, cached_only: bool = False) -> bool:
        """Move the log start behind segments that are too old or too many.

        With None for `now_ms` the time is not known, and no segment is too old.
        Returns true if there are segments to remove, once the start has been saved.
        """
        log, segments = self._log, self._store.segments
        with self._health.disk(f"apply retention to {self._store.path}"):
            expired = self._expired(log.high_watermark, now_ms, cached_only)
            if not expired:
                return False
            if expired[-1] is segments.active:
                log.appender.roll(log.end_offset, self._clock.now_ms())
        following = segments.after(expired[-1])
        assert following is not None, "the last segment does not expire"
        log.start_at(following.base_offset)
        return True

    def _expired(self, below: int, now_ms: int | None, cached_only: bool) -> list[Segment]:
        log = self._log
        return expired_segments(
            self._store.files,
            self._store.segments,
            log.config,
            log_start_offset=log.log_start_offset,
            high_watermark=below,
            end_offset=log.end_offset,
            now_ms=now_ms,
            cached_only=cached_only,
        )

    def local_end(self, below: int, now_ms: int | None, *, cached_only: bool = False) -> int:
        """The end of the sealed segments, at or below `below`, that local retention leaves to the archive.

        The local log start if there are none. Without `now_ms` the time is not known: only the size counts.
        A hole before the first segment is left to the archive, too.
        """
        log, segments, config = self._log, self._store.segments, local_config(self._log.config)
        end = log.local_log_start_offset
        if segments.first.base_offset > end:
            end = segments.first.base_offset if segments.first.base_offset <= below else end
        excess = segments.size - config.retention_bytes if config.retention_bytes >= 0 else 0
        with self._health.disk(f"apply retention to {self._store.path}"):
            for segment in segments:
                following = segments.after(segment)
                if following is None or following.base_offset > below:
                    break
                removed_already = following.base_offset <= log.local_log_start_offset
                too_much = segment.size <= excess
                if not (
                    removed_already
                    or too_much
                    or _too_old(self._store.files, segment, config, now_ms, cached_only)
                ):
                    break
                excess -= segment.size
                end = max(end, following.base_offset)
        return end

    def has_unexpired(self, now_ms: int | None) -> bool:
        """Returns true if the log has records that its own retention would keep.

        With None for `now_ms` the time is not known, and no record is too old.
        """
        log, segments = self._log, self._store.segments
        if log.end_offset <= log.log_start_offset:
            return False
        with self._health.disk(f"apply retention to {self._store.path}"):
            expired = self._expired(log.end_offset, now_ms, cached_only=False)
        kept = segments.after(expired[-1]) if expired else segments.first
        return kept is not None and (kept is not segments.active or kept.size > 0)

    def survey(self, since_ms: int, *, cached_only: bool = False) -> Survey:
        """The bytes that retention by time may delete, and those of them that were too old at `since_ms`.

        Segments that began after the log was opened do not count as too old, nor do those of a log whose
        retention was changed since then: neither is due to the time in which the broker was stopped.
        """
        log, segments, config = self._log, self._store.segments, self._log.config
        if not config.delete or config.retention_ms < 0:
            return Survey()
        overdue = 0
        with self._health.disk(f"apply retention to {self._store.path}"):
            newest_ms = segments.active.max_timestamp(cached_only)
            for segment in () if log.retention_changed else segments:
                seen = segment.size > 0 and segment.base_offset < log.opened_end
                if not (seen and _too_old(self._store.files, segment, config, since_ms, cached_only)):
                    break
                overdue += segment.size
        return Survey(segments.size, overdue, newest_ms)

    def remove_expired(self) -> list[Removal]:
        """Remove the segments before the saved local log start from the log; their files go later."""
        log, segments = self._log, self._store.segments
        start = log.local_log_start_offset
        if log.save_start is not None:
            start = min(start, max(log.saved_start, log.saved_local_start))
        gone = segments_before(segments, start)
        gone = self._store.snapshots.not_needed(gone, segments)
        if not gone:
            return []
        with self._health.disk(f"apply retention to {self._store.path}"):
            removed = self._store.remove(gone)
        # Those of records in the archive stay: followers and consumers ask for them.
        log.leader_epochs.forget_before(min(segments.first.base_offset, log.log_start_offset))
        return removed


def local_config(config: LogConfig) -> LogConfig:
    """The config with the retention of local segments as its retention."""
    size, age_ms = config.local_retention_bytes, config.local_retention_ms
    return replace(
        config,
        retention_bytes=config.retention_bytes if size == _FOLLOWS else size,
        retention_ms=config.retention_ms if age_ms == _FOLLOWS else age_ms,
    )


def expired_segments(
    files: Files,
    segments: Segments,
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    end_offset: int,
    now_ms: int | None,
    cached_only: bool,
) -> list[Segment]:
    """The oldest segments that are to go; all of them, the last included, if its records are too old.

    Without `now_ms` the time is not known, and no segment is too old.
    """
    excess = segments.size - config.retention_bytes if config.delete and config.retention_bytes >= 0 else 0
    expired: list[Segment] = []
    for segment in segments:
        following = segments.after(segment)
        upper = following.base_offset if following is not None else end_offset
        if upper > high_watermark or (following is None and not segment.size):
            break
        before_start = following is not None and following.base_offset <= log_start_offset
        too_much = segment.size <= excess
        if not (before_start or too_much or _too_old(files, segment, config, now_ms, cached_only)):
            break
        excess -= segment.size
        expired.append(segment)
    return expired


def segments_before(segments: Segments, log_start_offset: int) -> list[Segment]:
    """The sealed segments that lie wholly before `log_start_offset`, the oldest first."""
    found: list[Segment] = []
    for segment in segments:
        following = segments.after(segment)
        if following is None or following.base_offset > log_start_offset:
            break
        found.append(segment)
    return found


def _too_old(
    files: Files, segment: Segment, config: LogConfig, now_ms: int | None, cached_only: bool
) -> bool:
    if now_ms is None or not config.delete or config.retention_ms < 0:
        return False
    try:
        timestamp = segment.max_timestamp(cached_only)
        if segment.size and now_ms - timestamp > config.retention_ms:
            timestamp = _proven_max_timestamp(segment, cached_only)
    except CorruptLog:
        # The scrubber repairs the damage; until then nothing shows how old the records are.
        return False
    if timestamp < 0:
        timestamp = files.modified_ms(segment.path(LOG))
    return now_ms - timestamp > config.retention_ms


def _proven_max_timestamp(segment: Segment, cached_only: bool) -> int:
    """The largest timestamp of `segment`, compared with the batches: the time index has no checksum.

    Two headers are read: of the batch that the index names, and of the last one. Where they contradict the
    index, it is rebuilt. CorruptLog if the batches cannot be read.
    """
    timestamp = segment.max_timestamp(cached_only)
    if segment.damage or _has_timestamp(segment, timestamp, cached_only):
        return timestamp
    segment.distrust_indexes(cached_only)
    return segment.max_timestamp(cached_only)


def _has_timestamp(segment: Segment, timestamp: int, cached_only: bool) -> bool:
    """Returns true if the batch of the largest timestamp has it, and the last batch has no larger one."""
    end, file, size = segment.max_timestamp_end, segment.open_file(), segment.size
    try:
        positions = segment.offsets(cached_only).positions
        *_, (_, last) = scan(file, positions[-1] if positions else 0, size, cached_only)
        if timestamp < 0:
            return bool(last[MAX_TIMESTAMP] < 0)
        _, named = next(scan(file, segment.find(end, cached_only), size, cached_only))
    except (CorruptLog, StopIteration, ValueError):
        return False
    return bool(
        named[MAX_TIMESTAMP] == timestamp >= last[MAX_TIMESTAMP]
        and named[BASE_OFFSET] + named[LAST_OFFSET_DELTA] == end
    )
