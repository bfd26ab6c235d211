"""A partition's log: the storage of every topic, and of all cluster state.

Batches are appended at the end and never change. `Appender` appends them, `Durability` plans their syncs,
`Retention` expires them, `Truncation` removes them from the end. `SegmentStore` has the segments.

The event loop's thread owns a log. Work that waits for a disk goes to worker threads as objects that touch
files only: `FlushPlan.sync`, `ColdPages.warm`, `Removal.delete`. Reads and lookups run in the loop's thread.
With `cached_only` they raise ColdPages instead of waiting for the disk, and are repeated once the pages are
warm. Every error of a disk is a StorageError.

Cost is per batch and does not grow with the log: the hot path is `append` and `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.model.errors import OffsetOutOfRange
from penstock.ports import Buffer, Clock, FileRange, Files, Rng
from penstock.storage.appending import Appended, Appender
from penstock.storage.config import LogConfig
from penstock.storage.durability import Durability
from penstock.storage.flush import FlushPlan
from penstock.storage.guards import VerificationGuard
from penstock.storage.health import Health
from penstock.storage.loading import ClosedLog, Loaded, load
from penstock.storage.lookup import DatedBatch, aborted_transactions, batch_at_or_after, latest_batch
from penstock.storage.producer_loading import hold_back_undecided
from penstock.storage.producers import AppendOrigin
from penstock.storage.retention import Retention
from penstock.storage.rules import Rules
from penstock.storage.scan import ColdPages, CorruptLog
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentCache, Segments
from penstock.storage.store import SegmentStore
from penstock.storage.swap import Swap
from penstock.storage.truncation import Truncation
from penstock.storage.validation import LongWalk

__all__ = ["AppendOrigin", "Appended", "Log", "LongWalk"]


class Log:
    """The log in one directory.

    Invariant: explained_start <= log_start_offset <= high_watermark <= end_offset, and recovery_point <=
    end_offset. Records below the high watermark are committed; the log's owner moves it.

    Why it has more than 25 methods: all users of a log share one set of offsets, and read them on the hot
    path without a call. The methods move these offsets together and leave the work to the parts of the log.
    """

    __slots__ = (
        "_clock",
        "_health",
        "_store",
        "_truncation",
        "appender",
        "config",
        "durability",
        "end_offset",
        "explained_start",
        "file_lost",
        "high_watermark",
        "leader_epochs",
        "local_log_start_offset",
        "log_start_offset",
        "path",
        "producers",
        "recovery",
        "retention",
        "save_start",
        "saved_start",
        "segments",
    )

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
        start_recorded: bool = False,
        closed: ClosedLog | None = None,
        high_watermark: int = 0,
        rng: Rng | None = None,
        health: Health | None = None,
        cache: SegmentCache | None = None,
    ) -> Log:
        """Open or create the log in `path`; unless closed cleanly, recover from `recovery_point` on.

        With `start_recorded`, no segment beyond `log_start_offset` was ever removed: a missing one is damage.
        `closed` is what the log was when it was closed in good order, `high_watermark` the recorded one.
        """
        health = health or Health()
        health.check()
        try:
            offsets = recovery_point, log_start_offset
            loaded = load(files, path, config, clock, clean, *offsets, start_recorded, closed, high_watermark)
        except OSError as e:
            raise health.path_failed(e, f"cannot open {path}") from e
        store = SegmentStore(files, path, loaded.segments, cache or SegmentCache(), rng)
        store.directory_dirty = loaded.changed
        store.unsynced = loaded.unsynced
        return cls(store, config, clock, loaded, health)

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
        self.recovery.forget_before(loaded.log_start_offset)
        self.end_offset = loaded.end_offset
        self.log_start_offset = loaded.log_start_offset
        #: The log start that followers adopt: up to here retention or DeleteRecords has deleted records, here
        #: or at the leader. Below the log start if all records of it were lost.
        self.explained_start = loaded.log_start_offset
        #: the start of this broker's own copy; the same as the log start as long as nothing is tiered
        self.local_log_start_offset = loaded.log_start_offset
        self.high_watermark = loaded.log_start_offset
        #: writes the log start to the disk at once; None for a log whose start no checkpoint has
        self.save_start: Callable[[], None] | None = None
        #: The log start that the disk has. Segments are removed only below it, so that a segment that is
        #: missing above it is known to be lost.
        self.saved_start = 0
        #: true if a read found a segment file gone, which the scrubber has not examined yet
        self.file_lost = False
        self.config = config
        store.reconfigure(config)
        self.durability = Durability(store, loaded.epochs, health, loaded.recovery_point)
        self.appender = Appender(self, store, clock, health, config)
        self.retention = Retention(self, store, clock, health)
        self._truncation = Truncation(self, store, clock, health)

    def reconfigure(self, config: LogConfig) -> None:
        """Apply a new config to later appends, rolls and retention."""
        self.config = config
        self._store.reconfigure(config)
        self.appender.reconfigure(config)

    @property
    def rules(self) -> Rules:
        """The rules by which `append` checks a client's batches."""
        return self.appender.rules

    def trust_clock(self, trusted: bool) -> None:
        """Check timestamps against the wall clock, or accept all of them while the clock is not trusted."""
        self.appender.trust_clock(trusted, self.config)

    @property
    def health(self) -> Health:
        """The health of its data directory."""
        return self._health

    # -- appending

    def append(
        self,
        batches: memoryview,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked_by: Rules | None = None,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append as the leader; see `Appender.append`."""
        return self.appender.append(batches, leader_epoch, origin, checked_by, guard)

    def append_replicated(self, batches: Buffer, newest_epoch: int | None = None) -> int:
        """Append as a follower; see `Appender.append_replicated`."""
        return self.appender.append_replicated(batches, newest_epoch)

    def check_room(self) -> None:
        """Raise StorageError while the directory is full; metadata is appended without this check."""
        self.appender.check_room()

    # -- commits

    @property
    def last_stable_offset(self) -> int:
        """The end of what `read_committed` consumers see: committed, and without an open transaction."""
        unstable = self.producers.first_unstable
        if unstable is None or unstable > self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is committed; the high watermark never moves back."""
        if offset > self.end_offset:
            offset = self.end_offset
        if offset > self.high_watermark:
            self.high_watermark = offset
            if self.producers.first_unstable is not None:
                self.producers.replicated_to(offset)

    def restore_high_watermark(self, offset: int) -> None:
        """Start with the high watermark of the last run. It may be behind the last producer snapshot."""
        self.advance_high_watermark(offset)
        files, path = self._store.files, self.path
        with self._health.disk(f"open {path}"):
            hold_back_undecided(self.producers, self.segments, self.high_watermark, files, path)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return self.segments.size

    # -- durability

    @property
    def recovery_point(self) -> int:
        """Everything below is on the disk."""
        return self.durability.recovery_point

    def flush_plan(self) -> FlushPlan:
        """The plan to sync everything that was appended so far."""
        return self.durability.plan(self.end_offset)

    def flush_failed(self, plan: FlushPlan) -> None:
        """`plan` was not carried out, or only in part: the next plan includes its files."""
        self.durability.failed(plan)

    def flushed(self, plan: FlushPlan) -> None:
        """`plan` was carried out."""
        self.durability.flushed(plan)

    @property
    def is_untouched(self) -> bool:
        """Returns true for a log without records that needs no `seal`."""
        return self.durability.is_untouched(self.end_offset)

    def seal(self) -> FlushPlan:
        """Write the files that the next start needs to trust the log; the plan syncs them."""
        return self.durability.seal(self.producers, self.log_start_offset, self.end_offset)

    def close_file(self) -> None:
        """Close the file of the last segment; the next use opens it again."""
        self.segments.active.close_file()

    def close(self, clean: bool = True) -> None:
        """Close the files; with `clean` everything is synced first, so that `open` may trust it."""
        if clean:
            plan = self.seal()
            plan.sync()
            self.flushed(plan)
        self._store.release()

    # -- segments

    def roll(self) -> None:
        """Seal the last segment, unless it is empty, and start a new one at the end of the log."""
        with self._health.disk(f"roll {self.path}"):
            self.appender.roll(self.end_offset, self._clock.now_ms())

    def swap(self, replaced: Iterable[int]) -> Swap:
        """The exchange of the segments at the offsets `replaced` for what compaction made of them."""
        return Swap(self._store.files, self.path, self._health, replaced)

    def replace_segments(self, swap: Swap, old: Iterable[int], new: Iterable[tuple[int, int]]) -> None:
        """Move what `swap` has committed, (base offset, size) each, in the place of the segments at `old`."""
        swap.move()
        gone, now_ms = set(old), self._clock.now_ms()
        self._store.replace(
            [segment for segment in self.segments if segment.base_offset in gone],
            [Segment(self._store.files, self.path, base, size, now_ms) for base, size in new],
        )

    def lose_segment(self, segment: Segment) -> None:
        """Leave out a segment whose file is gone; an empty last one is created again."""
        with self._health.disk(f"make a segment of {self.path}"):
            self._store.lose(segment, self._clock.now_ms())

    # -- the start of the log

    def delete_records(self, before_offset: int) -> int:
        """Start the log at `before_offset`, which must be committed; the new start. Space is freed later."""
        if not 0 <= before_offset <= self.high_watermark:
            raise OffsetOutOfRange(f"offset {before_offset} is not within [0, {self.high_watermark}]")
        self.start_at(before_offset)
        return self.log_start_offset

    def start_at(self, offset: int) -> None:
        """Move the log start to `offset`, for a reason; it never moves back."""
        if offset > self.log_start_offset:
            self.log_start_offset = self.local_log_start_offset = offset
            self.recovery.forget_before(offset)
        self.explained_start = max(offset, self.explained_start)

    # -- the end of the log

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that reaches `offset`: a follower removes what its leader does not have."""
        self._truncation.truncate_to(offset)

    def reset_to(self, offset: int) -> None:
        """Drop everything and start over, empty, at `offset`."""
        self._truncation.reset_to(offset)

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

        The last batch may be cut, unless it is a recent one. The first never is: where it is larger than
        `max_bytes`, it is returned with `at_least_one`, and nothing is without. None if nothing is there or
        fits. With `cached_only`, `ColdPages` is raised where the range would have to come from the disk.
        Bytes that are known to be damaged are a `CorruptLog`.
        """
        end_offset = self.end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within [{self.log_start_offset}, {end_offset}]")
        if self._health.offline is not None:
            self._health.check()
        if offset >= upper:
            return None
        damaged_from = upper
        if self.recovery.corruption:
            damaged_from = min(upper, self.recovery.sound_end(offset))
        try:
            found = self._store.read(offset, max_bytes, damaged_from, end_offset, at_least_one, cached_only)
        except OSError as e:
            self.file_lost |= isinstance(e, FileNotFoundError)
            raise self._health.failed(e, f"cannot read {self.path}") from e
        if found is None and damaged_from < upper and at_least_one:
            # Compaction left nothing before the damage: a reader must not wait there, nor skip it.
            self.recovery.sound_end(damaged_from)
        return found

    def newest(self, offset: int) -> bytes | None:
        """All from `offset` to the end of the log, where that is what a client appended last, and little.

        No transaction is aborted in these batches, so a response to them lists none.
        """
        first, end, batches = self.appender.newest
        if first != offset or end != self.end_offset or offset < self.log_start_offset:
            return None
        if self._health.offline is not None:
            self._health.check()
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
        """An offset at or behind the end of what a read from `offset` found; a near one, by the index."""
        return self._store.offset_behind(offset, found, self.end_offset)

    def aborted_transactions(
        self, start: int, upper: int, *, cached_only: bool = False
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that reach into [start, upper)."""
        with self._health.disk(f"read {self.path}"):
            found = aborted_transactions(self.segments, start, upper, cached_only)
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    def batch_at_or_after(
        self, timestamp: int, start: int, *, cached_only: bool = False
    ) -> DatedBatch | None:
        """The batch that may have the first record from `start` on with `timestamp` or a later one."""
        with self._health.disk(f"read {self.path}"):
            return batch_at_or_after(self.segments, timestamp, start, cached_only)

    def latest_batch(self, start: int, *, cached_only: bool = False) -> DatedBatch | None:
        """The batch that may have the first record from `start` on with the largest timestamp of the log."""
        with self._health.disk(f"read {self.path}"):
            return latest_batch(self.segments, start, cached_only)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch`, the offset behind its last record), (-1, -1) if unknown."""
        return self.leader_epochs.end_offset(epoch, self.end_offset)
