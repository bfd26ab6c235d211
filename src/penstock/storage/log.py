"""A partition's log: what every topic, and every piece of cluster state, is stored in.

Batches are appended at the end and never change. Offsets: log_start_offset <= high_watermark <= end_offset
and recovery_point <= end_offset. Below the recovery point everything is on the disk; below the high watermark
everything is committed, which the log is told (`advance_high_watermark`) and never decides.

The event loop's thread owns a log. Work that waits for a disk goes to worker threads as objects that touch
files only: `FlushPlan.sync`, `ColdPages.warm`, `Removal.delete`. Lookups by timestamp may run in one, too:
what they change is only what stays open. Every error of a disk is a StorageError.

Cost is per batch and does not grow with the log: the hot path is `append` and `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import CorruptMessage, OffsetOutOfRange, RecordListTooLarge
from penstock.ports import Buffer, Clock, FileRange, Files, Rng
from penstock.records.batch import CONTROL_BIT, LOG_OVERHEAD
from penstock.records.control import EndTransaction, parse_end_transaction
from penstock.storage.config import LogConfig
from penstock.storage.flush import FlushPlan
from penstock.storage.health import Health
from penstock.storage.loading import EPOCHS_FILE, Loaded, load, load_producers, prune_snapshots
from penstock.storage.lookup import TimestampOffset, aborted_transactions, latest_record, record_at_or_after
from penstock.storage.producers import AppendOrigin, CompletedTransaction, ProducerStates
from penstock.storage.removal import Removal
from penstock.storage.retention import expired_segments
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentCache, Segments
from penstock.storage.snapshot import encode_snapshot
from penstock.storage.store import SegmentStore
from penstock.storage.swap import Swap
from penstock.storage.transactions import AbortedTransaction
from penstock.storage.validation import Rules, check_replicated, validate

__all__ = ["AppendOrigin", "Appended", "Log"]

#: base offset, length, leader epoch: what an append writes into a batch
_STAMP: Final = Struct(">qii")
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
        "_clock",
        "_generation",
        "_health",
        "_index_interval",
        "_rules",
        "_store",
        "before_truncation",
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
        self, store: SegmentStore, config: LogConfig, clock: Clock, loaded: Loaded, health: Health
    ) -> None:
        self._store = store
        self.path = store.path
        self.segments: Segments = store.segments
        self._clock = clock
        self._health = health
        self.leader_epochs = loaded.epochs
        self.producers = loaded.producers
        self.recovery = loaded.report
        self.end_offset = loaded.end_offset
        self.log_start_offset = loaded.log_start_offset
        #: where this broker's own copy starts; the same as long as nothing is tiered
        self.local_log_start_offset = loaded.log_start_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        #: called before bytes below the recovery point that is on the disk are cut
        self.before_truncation: Callable[[], None] | None = None
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
            loaded = load(files, path, config, clock, clean, recovery_point, log_start_offset)
        except OSError as e:
            raise health.failed(e, f"cannot open {path}") from e
        store = SegmentStore(files, path, loaded.segments, cache or SegmentCache(), rng)
        store.directory_dirty = loaded.changed
        store.unsynced = loaded.unsynced
        return cls(store, config, clock, loaded, health)

    def reconfigure(self, config: LogConfig) -> None:
        """Take a new config; it holds for what is appended, rolled and retained from now on."""
        self.config = config
        self._rules = Rules(config)
        self._index_interval = config.index_interval_bytes
        self._store.reconfigure(config)

    @contextmanager
    def _disk(self, doing: str) -> Iterator[None]:
        """Refuse if the directory is offline; make an OSError what it means for the directory."""
        self._health.check()
        try:
            yield
        except OSError as e:
            raise self._health.failed(e, f"cannot {doing} {self.path}") from e

    # -- appending

    def append(
        self, batches: memoryview, leader_epoch: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> Appended:
        """Append as the leader: check, stamp in place, write; all of `batches` or nothing."""
        if self._health.offline is not None:
            self._health.check()
        now_ms = self._clock.now_ms()
        rules = self._rules
        headers = validate(batches, rules, origin, now_ms)
        if len(batches) > rules.segment_bytes:
            raise RecordListTooLarge(f"{len(batches)} bytes at once; segment.bytes is {rules.segment_bytes}")
        base = offset = self.end_offset
        position = 0
        placed: list[_Placed] = []
        for header in headers:
            size = header[1] + LOG_OVERHEAD
            marker = None
            if header[9] >= 0:
                if header[5] & CONTROL_BIT:
                    marker = parse_end_transaction(batches[position : position + size])
                past = self.producers.check(header, origin, marker)
                if past is not None:
                    return Appended(
                        past.first_offset, past.last_offset, past.timestamp, self.log_start_offset, True
                    )
            _STAMP.pack_into(batches, position, offset, header[1], leader_epoch)
            placed.append((header, offset, marker))
            position += size
            offset += header[6] + 1
        self._write(batches, placed, now_ms)
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base)
        append_time_ms = now_ms if rules.log_append_time else -1
        return Appended(base, offset - 1, append_time_ms, self.log_start_offset, False)

    def append_replicated(self, batches: Buffer) -> None:
        """Append what the leader has: offsets and epochs as they are, continuing this log."""
        self._health.check()
        view = memoryview(batches)
        placed: list[_Placed] = []
        next_offset = self.end_offset
        position = 0
        gaps = False
        for header in check_replicated(view):
            if header[0] < next_offset:
                raise CorruptMessage(f"a batch at offset {header[0]} cannot follow {next_offset - 1}")
            gaps |= header[0] > next_offset
            next_offset = header[0] + header[6] + 1
            size = header[1] + LOG_OVERHEAD
            marker = None
            if header[9] >= 0 and header[5] & CONTROL_BIT:
                marker = parse_end_transaction(view[position : position + size])
            placed.append((header, header[0], marker))
            position += size
        if placed:
            self._write(view, placed, self._clock.now_ms())
            if gaps:
                with self._disk("mark gaps in"):
                    self._store.allow_gaps()
            for header, base, _ in placed:
                self.leader_epochs.assign(header[2], base)

    def _write(self, data: Buffer, placed: list[_Placed], now_ms: int) -> None:
        """Write checked batches, then tell indexes and producers; an error leaves everything as it was."""
        header, base, _ = placed[-1]
        end = base + header[6] + 1
        max_timestamp = header[8] if len(placed) == 1 else max(header[8] for header, _, _ in placed)
        store = self._store
        try:
            if store.must_roll(len(data), end - 1, max_timestamp, now_ms):
                self._roll(placed[0][1], now_ms)
            segment = self.segments.active
            position = segment.append(data)
        except OSError as e:
            raise self._health.failed(e, f"cannot append to {self.path}") from e
        producers = self.producers
        for header, base, marker in placed:
            size = header[1] + LOG_OVERHEAD
            segment.index(position, size, base + header[6], header[8], self._index_interval)
            segment.remember(base, position)
            if header[9] >= 0 and (marker is not None or not header[5] & CONTROL_BIT):
                completed = producers.apply(header, base, marker)
                if completed is not None and completed.aborted:
                    self._index_aborted(segment, completed)
            position += size
        self.end_offset = producers.end_offset = end

    def _index_aborted(self, segment: Segment, completed: CompletedTransaction) -> None:
        stable = self.producers.last_stable_after(completed)
        self._store.directory_dirty |= segment.transactions.file is None
        try:
            segment.transactions.add(AbortedTransaction(*completed[:3], stable))
        except OSError as e:
            # The marker is in the log, and without its entry readers would see aborted records.
            raise self._health.sync_failed(e, f"cannot index an aborted transaction in {self.path}") from e

    def roll(self) -> None:
        """Seal the last segment, unless it is empty, and start a new one at the end of the log."""
        with self._disk("roll"):
            self._roll(self.end_offset, self._clock.now_ms())

    def _roll(self, first_offset: int, now_ms: int) -> None:
        """Have a new segment for `first_offset` and what follows it."""
        self._store.roll(self.end_offset, first_offset, now_ms, encode_snapshot(self.producers.states))

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
        `cached_only`, `ColdPages` is raised where the range would have to come from the disk. Bytes that are
        known to be damaged are a `CorruptLog`.
        """
        end_offset = self.end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within [{self.log_start_offset}, {end_offset}]")
        if self._health.offline is not None:
            self._health.check()
        if offset >= upper:
            return None
        if self.recovery.corruption:
            upper = min(upper, self.recovery.sound_end(offset))
        try:
            return self._store.read(offset, max_bytes, upper, end_offset, at_least_one, cached_only)
        except OSError as e:
            raise self._health.failed(e, f"cannot read {self.path}") from e

    def aborted_transactions(self, start: int, upper: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that reach into [start, upper)."""
        with self._disk("read"):
            found = aborted_transactions(self.segments, start, upper)
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    def offset_for_timestamp(self, timestamp: int, *, cached_only: bool = False) -> TimestampOffset | None:
        """The first record whose timestamp is `timestamp` or later; None if there is none."""
        with self._disk("read"):
            return record_at_or_after(self.segments, timestamp, self.log_start_offset, cached_only)

    def max_timestamp_offset(self, *, cached_only: bool = False) -> TimestampOffset | None:
        """The first record with the largest timestamp of the log; None if the log is empty."""
        with self._disk("read"):
            return latest_record(self.segments, cached_only)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch`, the offset behind its last record), (-1, -1) if unknown."""
        return self.leader_epochs.end_offset(epoch, self.end_offset)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

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

    # -- durability

    def flush_plan(self) -> FlushPlan:
        """What has to be synced for everything appended so far to last."""
        store, epochs = self._store, self.leader_epochs
        checkpoint = (f"{self.path}/{EPOCHS_FILE}", epochs.encode()) if epochs.dirty else None
        plan = FlushPlan(
            store.files,
            self.path,
            self._health,
            handles=store.unsynced_files(self.end_offset > self.recovery_point),
            sync_directory=store.directory_dirty,
            checkpoint=checkpoint,
            end_offset=self.end_offset,
            generation=self._generation,
        )
        epochs.dirty = store.directory_dirty = False
        return plan

    def flush_failed(self, plan: FlushPlan) -> None:
        """`plan` has not been carried out, or in part: the next one has to do what it left."""
        self._store.unsynced += plan.handles
        self.leader_epochs.dirty = self._store.directory_dirty = True

    def flushed(self, plan: FlushPlan) -> None:
        """`plan` has been carried out."""
        if plan.generation == self._generation and plan.end_offset > self.recovery_point:
            self.recovery_point = plan.end_offset

    def close(self, clean: bool = True) -> None:
        """Let go of the files; `clean` brings everything to the disk first, so that `open` may trust it."""
        if clean:
            with self._disk("close"):
                store = self._store
                store.unsynced += self.segments.active.save_indexes()
                if self.end_offset > self.log_start_offset and not store.has_snapshot(self.end_offset):
                    snapshot = encode_snapshot(self.producers.states)
                    store.unsynced.append(store.write_snapshot(self.end_offset, snapshot))
            plan = self.flush_plan()
            plan.sync()
            self.flushed(plan)
        self._store.release()

    # -- the far end

    def delete_records(self, before_offset: int) -> int:
        """Start the log at `before_offset`, which must be committed; the new start. Space is freed later."""
        if not 0 <= before_offset <= self.high_watermark:
            raise OffsetOutOfRange(f"offset {before_offset} is not within [0, {self.high_watermark}]")
        self._start_at(before_offset)
        return self.log_start_offset

    def _start_at(self, offset: int) -> None:
        if offset > self.log_start_offset:
            self.log_start_offset = self.local_log_start_offset = offset

    def apply_retention(self, now_ms: int) -> list[Removal]:
        """Let go of segments that are too old or too many; `delete` each in a worker thread, later."""
        with self._disk("apply retention to"):
            expired = expired_segments(
                self._store.files,
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                end_offset=self.end_offset,
                now_ms=now_ms,
            )
            if not expired:
                return []
            if expired[-1] is self.segments.active:
                self._roll(self.end_offset, now_ms)
            removed = self._store.remove(expired)
        self._start_at(self.segments.first.base_offset)
        self.leader_epochs.forget_before(self.segments.first.base_offset)
        return removed

    def swap(self, replaced: Iterable[int]) -> Swap:
        """The exchange of the segments at the offsets `replaced` for what compaction made of them."""
        return Swap(self._store.files, self.path, self._health, replaced)

    def replace_segments(self, swap: Swap, old: Iterable[int], new: Iterable[tuple[int, int]]) -> None:
        """Move what `swap` has committed, (base offset, size) each, in the place of the segments at `old`."""
        swap.move()
        gone = set(old)
        now_ms = self._clock.now_ms()
        self._store.replace(
            [segment for segment in self.segments if segment.base_offset in gone],
            [Segment(self._store.files, self.path, base, size, now_ms) for base, size in new],
        )

    # -- the near end

    def truncate_to(self, offset: int) -> None:
        """Cut every batch that reaches `offset`: what a follower does with what its leader does not have."""
        if offset >= self.end_offset:
            return
        with self._disk("truncate"):
            segment, position, end_offset = self._store.cut_point(offset)
        if end_offset <= self.log_start_offset:
            # Nothing is left, and the log may have started within the batch that is cut.
            self.reset_to(min(offset, self.log_start_offset))
            return
        with self._disk("truncate"):
            self._lower_recovery_point(end_offset)
            self._store.cut(segment, position, end_offset)
            files = self._store.files
            snapshots = prune_snapshots(files, self.path, end_offset)
            self.producers = load_producers(self.segments, snapshots, end_offset, files, self.path)
        self.end_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self.producers.replicated_to(self.high_watermark)
        self.leader_epochs.forget_from(end_offset)

    def reset_to(self, offset: int) -> None:
        """Drop everything and start over, empty, at `offset`."""
        with self._disk("reset"):
            self._lower_recovery_point(0)
            self._store.restart(offset, self._clock.now_ms())
            prune_snapshots(self._store.files, self.path, -1)
        self.producers = ProducerStates()
        self.leader_epochs.clear()
        self.log_start_offset = self.local_log_start_offset = offset
        self.end_offset = self.high_watermark = self.recovery_point = self.producers.end_offset = offset

    def _lower_recovery_point(self, offset: int) -> None:
        """Before what was durable goes: a crash must not miss it, and no flush in flight may count."""
        self._generation += 1
        if offset < self.recovery_point:
            self.recovery_point = offset
            if self.before_truncation is not None:
                self.before_truncation()

    def delete(self) -> None:
        """Let go of the log and remove its directory."""
        with self._disk("delete"):
            self._store.release()
            self._store.files.rmtree(self.path)
