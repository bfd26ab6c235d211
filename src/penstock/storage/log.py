"""A partition's log: what every topic, and every piece of cluster state, is stored in.

Batches are appended at the end and never change. Offsets: log_start_offset <= high_watermark <= end_offset
and recovery_point <= end_offset. Below the recovery point everything is on the disk; below the high watermark
everything is committed, which the log is told (`advance_high_watermark`) and never decides.

The event loop's thread owns a log. Work that waits for a disk goes to worker threads as objects that touch
files only: `FlushPlan.sync`, `ColdPages.warm`, `Removal.delete`.

Cost is per batch and does not grow with the log: the hot path is `append` and `read`.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import CorruptMessage, OffsetOutOfRange, RecordListTooLarge
from penstock.ports import Buffer, Clock, File, FileRange, Files, Rng
from penstock.records.batch import CONTROL_BIT, LOG_OVERHEAD
from penstock.records.control import EndTransaction, parse_end_transaction
from penstock.storage.config import LogConfig
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.flush import FlushPlan
from penstock.storage.health import Health
from penstock.storage.loading import EPOCHS_FILE, Loaded, load
from penstock.storage.lookup import TimestampOffset, aborted_transactions, latest_record, record_at_or_after
from penstock.storage.producers import AppendOrigin, CompletedTransaction, ProducerStates
from penstock.storage.recovery import RecoveryReport
from penstock.storage.scan import ColdPages, read_bytes
from penstock.storage.segment import SNAPSHOT, Segment, file_name
from penstock.storage.segments import SegmentCache, Segments
from penstock.storage.snapshot import encode_snapshot
from penstock.storage.transactions import AbortedTransaction
from penstock.storage.validation import Rules, check_replicated, validate

__all__ = ["Appended", "Log"]

#: base offset, length, leader epoch: what an append writes into a batch
_STAMP: Final = Struct(">qii")
_LENGTH: Final = Struct(">8xi")
_RELATIVE_OFFSET_MAX: Final = 2**31 - 1
#: The newest bytes of the last segment were just written: they are in memory, no need to probe.
_HOT_TAIL_BYTES: Final = 16 * 1024 * 1024

#: a batch to write: its header's fields, the offset it gets, and what it ends if it is a marker
_Placed: TypeAlias = tuple[tuple[int, ...], int, EndTransaction | None]


class Appended(NamedTuple):
    """Where batches went."""

    base_offset: int
    last_offset: int
    #: -1 unless the log stamps batches with the time of their append
    append_time_ms: int
    log_start_offset: int
    #: whether the batch had been appended before; nothing was written
    duplicate: bool


class Log:
    """The log in one directory."""

    __slots__ = (
        "_cache",
        "_clock",
        "_directory_dirty",
        "_files",
        "_generation",
        "_health",
        "_rng",
        "_roll_jitter_ms",
        "_rules",
        "_segment_ms_max",
        "_unsynced",
        "config",
        "end_offset",
        "high_watermark",
        "leader_epochs",
        "local_log_start_offset",
        "log_start_offset",
        "path",
        "producers",
        "recovery",
        "recovery_point",
        "segments",
    )

    def __init__(
        self,
        files: Files,
        path: str,
        config: LogConfig,
        clock: Clock,
        loaded: Loaded,
        *,
        log_start_offset: int,
        rng: Rng | None,
        health: Health,
        cache: SegmentCache,
    ) -> None:
        self._files = files
        self.path = path
        self._clock = clock
        self._rng = rng
        self._health = health
        self._cache = cache
        self.segments: Segments = loaded.segments
        self.leader_epochs: LeaderEpochs = loaded.epochs
        self.producers: ProducerStates = loaded.producers
        self.recovery: RecoveryReport = loaded.report
        self.end_offset = loaded.end_offset
        self.log_start_offset = max(log_start_offset, loaded.segments.first.base_offset)
        self.local_log_start_offset = self.log_start_offset
        self.high_watermark = self.log_start_offset
        self.recovery_point = loaded.end_offset
        self._unsynced: list[File] = []
        self._directory_dirty = True
        self._generation = 0
        self.reconfigure(config)

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        config: LogConfig,
        clock: Clock,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        rng: Rng | None = None,
        health: Health | None = None,
        cache: SegmentCache | None = None,
    ) -> Log:
        """Open or create the log in `path`; unless closed cleanly, recover from `recovery_point` on."""
        health = health or Health()
        health.check()
        try:
            loaded = load(
                files,
                path,
                config,
                clock,
                clean=clean,
                recovery_point=recovery_point,
                log_start_offset=log_start_offset,
            )
        except OSError as e:
            raise health.failed(e, f"cannot open {path}") from e
        log = cls(
            files,
            path,
            config,
            clock,
            loaded,
            log_start_offset=log_start_offset,
            rng=rng,
            health=health,
            cache=cache or SegmentCache(),
        )
        if not loaded.report.clean:
            log.recovery_point = min(recovery_point, log.end_offset)
        return log

    def reconfigure(self, config: LogConfig) -> None:
        """Take a new config; it holds for what is appended and rolled from now on."""
        self.config = config
        self._rules = Rules(config)
        self._segment_ms_max = config.segment_ms_max
        self._draw_jitter()

    def _draw_jitter(self) -> None:
        bound = min(self.config.segment_jitter_ms, self.config.segment_ms)
        self._roll_jitter_ms = int(self._rng.uniform(0, bound)) if bound and self._rng else 0

    # -- appending

    def append(
        self, batches: memoryview, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> Appended:
        """Append as the leader: check, stamp in place, write; all of `batches` or nothing."""
        if self._health.offline is not None:
            self._health.check()
        now_ms = self._clock.now_ms()
        headers = validate(batches, self._rules, origin, now_ms)
        if len(batches) > self.config.segment_bytes:
            raise RecordListTooLarge(
                f"{len(batches)} bytes in one append; segment.bytes is {self.config.segment_bytes}"
            )
        append_time_ms = now_ms if self._rules.log_append_time else -1
        base = offset = self.end_offset
        position = 0
        placed = []
        for header in headers:
            marker = None
            if header[9] >= 0:
                size = header[1] + LOG_OVERHEAD
                if header[5] & CONTROL_BIT:
                    marker = parse_end_transaction(batches[position : position + size])
                duplicate = self.producers.check(header, origin, marker)
                if duplicate is not None:
                    return Appended(
                        duplicate.first_offset,
                        duplicate.last_offset,
                        duplicate.timestamp,
                        self.log_start_offset,
                        True,
                    )
            _STAMP.pack_into(batches, position, offset, header[1], leader_epoch)
            placed.append((header, offset, marker))
            position += header[1] + LOG_OVERHEAD
            offset += header[6] + 1
        self._write(batches, placed, now_ms)
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base)
        return Appended(base, offset - 1, append_time_ms, self.log_start_offset, False)

    def append_replicated(self, batches: Buffer) -> None:
        """Append what the leader has: offsets and epochs as they are, continuing this log."""
        self._health.check()
        placed: list[_Placed] = []
        next_offset = self.end_offset
        position = 0
        view = memoryview(batches)
        for header in check_replicated(view):
            if header[0] < next_offset:
                raise CorruptMessage(f"a batch at offset {header[0]} cannot follow {next_offset - 1}")
            next_offset = header[0] + header[6] + 1
            size = header[1] + LOG_OVERHEAD
            control = header[9] >= 0 and header[5] & CONTROL_BIT
            placed.append(
                (
                    header,
                    header[0],
                    parse_end_transaction(view[position : position + size]) if control else None,
                )
            )
            position += size
        if placed:
            self._write(view, placed, self._clock.now_ms())
            for header, base, _ in placed:
                self.leader_epochs.assign(header[2], base)

    def _write(self, data: Buffer, placed: list[_Placed], now_ms: int) -> None:
        """Write checked batches, then tell indexes and producers; an error leaves everything as it was."""
        header, base, _ = placed[-1]
        end = base + header[6] + 1
        max_timestamp = header[8] if len(placed) == 1 else max(header[8] for header, _, _ in placed)
        segment = self.segments.active
        try:
            if self._must_roll(segment, len(data), end - 1, max_timestamp, now_ms):
                segment = self._roll(placed[0][1], now_ms)
            position = segment.append(data)
        except OSError as e:
            raise self._health.failed(e, f"cannot append to {self.path}") from e
        interval = self.config.index_interval_bytes
        producers = self.producers
        for header, base, marker in placed:
            size = header[1] + LOG_OVERHEAD
            segment.index(position, size, base + header[6], header[8], interval)
            segment.remember(base, position)
            if header[9] >= 0 and (marker is not None or not header[5] & CONTROL_BIT):
                completed = producers.apply(header, base, marker)
                if completed is not None and completed.aborted:
                    self._index_aborted(segment, completed)
            position += size
        self.end_offset = producers.end_offset = end

    def _index_aborted(self, segment: Segment, completed: CompletedTransaction) -> None:
        stable = self.producers.last_stable_after(completed)
        created = segment.transactions.file is None
        try:
            segment.transactions.add(AbortedTransaction(*completed[:3], stable))
        except OSError as e:
            # The marker is written: readers would see aborted records. Recovery rebuilds the index.
            raise self._health.sync_failed(e, f"cannot index an aborted transaction in {self.path}") from e
        self._directory_dirty |= created

    # -- segments

    def _must_roll(
        self, segment: Segment, size: int, last_offset: int, max_timestamp: int, now_ms: int
    ) -> bool:
        if not segment.size:
            return last_offset - segment.base_offset > _RELATIVE_OFFSET_MAX
        config = self.config
        first = segment.first_timestamp
        if first is None:
            first = segment.load_first_timestamp()
        waited = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        return (
            segment.size + size > config.segment_bytes
            or waited > self._segment_ms_max - self._roll_jitter_ms
            or segment.indexes_full(config.segment_index_bytes)
            or last_offset - segment.base_offset > _RELATIVE_OFFSET_MAX
        )

    def roll(self) -> Segment:
        """Seal the last segment, unless it is empty, and start a new one at the end of the log."""
        self._health.check()
        try:
            return self._roll(self.end_offset, self._clock.now_ms())
        except OSError as e:
            raise self._health.failed(e, f"cannot roll {self.path}") from e

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        sealed = self.segments.active
        if not sealed.size and sealed.base_offset == base_offset:
            return sealed
        written = sealed.save_indexes()
        written.append(self._write_snapshot(base_offset))
        segment = Segment.create(self._files, self.path, base_offset, now_ms)
        written.append(sealed.open_file())
        if sealed.transactions.file is not None:
            written.append(sealed.transactions.file)
        self._unsynced += written
        self._directory_dirty = True
        self.segments.push(segment)
        self._cache.used(sealed)
        sealed.recent.clear()
        self._draw_jitter()
        return segment

    def _write_snapshot(self, offset: int) -> File:
        """Keep the producers as they are at `offset`, the end of the log."""
        file = self._files.open(f"{self.path}/{file_name(offset)}{SNAPSHOT}", create=True)
        file.truncate(0)
        file.append(encode_snapshot(self.producers.states))
        return file

    def replace_segments(self, replaced: Iterable[int], replacements: Iterable[tuple[int, int]]) -> None:
        """Go on with segments, as (base offset, size), whose files have just taken the place of others."""
        bases = set(replaced)
        old = [segment for segment in self.segments if segment.base_offset in bases]
        for segment in old:
            self._cache.forget(segment)
            segment.release()
        now_ms = self._clock.now_ms()
        new = [Segment(self._files, self.path, base, size, now_ms) for base, size in replacements]
        self.segments.replace(old, new)

    # -- reading

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

        The last batch may be cut; with `at_least_one` the first never is. None if nothing is there. With
        `cached_only`, `ColdPages` is raised where the range would have to come from the disk.
        """
        if offset < self.log_start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not within [{self.log_start_offset}, {self.end_offset}]"
            )
        if self._health.offline is not None:
            self._health.check()
        if offset >= upper:
            return None
        try:
            return self._read(offset, max_bytes, upper, at_least_one, cached_only)
        except OSError as e:
            raise self._health.failed(e, f"cannot read {self.path}") from e

    def _read(
        self, offset: int, max_bytes: int, upper: int, at_least_one: bool, cached_only: bool
    ) -> FileRange | None:
        segments = self.segments
        segment: Segment | None = segments.holding(offset)
        while segment is not None and (upper > segment.base_offset):
            position = segment.find(offset, cached_only)
            if position < segment.size:
                break
            # Compaction may have left nothing of the rest of this segment: the next one has the next record.
            segment = segments.after(segment)
        else:
            return None
        active = segment is segments.active
        following = None if active else segments.after(segment)
        if upper >= (following.base_offset if following else self.end_offset):
            end = segment.size
        else:
            end = segment.find(upper, cached_only)
        size = end - position
        file = segment.open_file()
        if size > max_bytes:
            size = (
                max(max_bytes, self._batch_size(file, position, cached_only)) if at_least_one else max_bytes
            )
        if not active:
            self._cache.used(segment)
        if size <= 0:
            return None
        if cached_only and (not active or position < segment.size - _HOT_TAIL_BYTES):
            _probe(file, position, size)
        return FileRange(file, position, size)

    def _batch_size(self, file: File, position: int, cached_only: bool) -> int:
        length: int = _LENGTH.unpack(read_bytes(file, _LENGTH.size, position, cached_only))[0]
        return length + LOG_OVERHEAD

    def aborted_transactions(self, start: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that reach into [start, upper)."""
        try:
            found = aborted_transactions(self.segments, start, upper)
        except OSError as e:
            raise self._health.failed(e, f"cannot read {self.path}") from e
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    def offset_for_timestamp(self, timestamp: int, *, cached_only: bool = False) -> TimestampOffset | None:
        """The first record whose timestamp is `timestamp` or later; None if there is none."""
        self._health.check()
        try:
            return record_at_or_after(self.segments, timestamp, self.log_start_offset, cached_only)
        except OSError as e:
            raise self._health.failed(e, f"cannot read {self.path}") from e

    def max_timestamp_offset(self, *, cached_only: bool = False) -> TimestampOffset | None:
        """The first record with the largest timestamp of the log; None if the log is empty."""
        self._health.check()
        try:
            return latest_record(self.segments, cached_only)
        except OSError as e:
            raise self._health.failed(e, f"cannot read {self.path}") from e

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch`, the offset behind its last record), (-1, -1) if unknown."""
        return self.leader_epochs.end_offset(epoch, self.end_offset)

    # -- what is committed

    @property
    def last_stable_offset(self) -> int:
        """Readers of committed records see what is below: no open transaction, nothing uncommitted."""
        unstable = self.producers.first_unstable
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed; it never moves back."""
        offset = min(offset, self.end_offset)
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.first_unstable is not None:
                self.producers.replicated_to(offset)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    # -- durability

    def flush_plan(self) -> FlushPlan:
        """What has to be synced for everything appended so far to last."""
        handles = list(self._unsynced)
        active = self.segments.active
        if active.file is not None and self.end_offset > self.recovery_point:
            handles.append(active.file)
            if active.transactions.file is not None:
                handles.append(active.transactions.file)
        epochs = self.leader_epochs
        checkpoint = (f"{self.path}/{EPOCHS_FILE}", epochs.encode()) if epochs.dirty else None
        plan = FlushPlan(
            self._files,
            self.path,
            self._health,
            handles=handles,
            sync_directory=self._directory_dirty,
            checkpoint=checkpoint,
            end_offset=self.end_offset,
            generation=self._generation,
        )
        epochs.dirty = self._directory_dirty = False
        self._unsynced = []
        return plan

    def flushed(self, plan: FlushPlan) -> None:
        """`plan` has been carried out."""
        if plan.generation == self._generation and plan.end_offset > self.recovery_point:
            self.recovery_point = plan.end_offset

    def close(self, clean: bool = True) -> None:
        """Let go of the files; `clean` brings everything to the disk first, so that `open` may trust it."""
        if clean:
            self._health.check()
            try:
                self._unsynced += self.segments.active.save_indexes()
                if self.end_offset > self.log_start_offset:
                    self._unsynced.append(self._write_snapshot(self.end_offset))
                    self._directory_dirty = True
            except OSError as e:
                raise self._health.failed(e, f"cannot close {self.path}") from e
            plan = self.flush_plan()
            plan.sync()
            self.flushed(plan)
        for segment in self.segments:
            self._cache.forget(segment)
            segment.release()


def _probe(file: File, position: int, size: int) -> None:
    """Raise `ColdPages` unless the first and the last byte of a range are in memory."""
    if file.pread_cached(1, position) is None or file.pread_cached(1, position + size - 1) is None:
        raise ColdPages(file, position, size)
