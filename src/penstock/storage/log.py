"""A partition's log: the storage of every topic, and of all cluster state.

Batches are appended at the end and never change. `Appender` appends them, `Durability` plans their syncs,
`Retention` expires them, `Truncation` removes them from the end. `SegmentStore` has the segments.

The event loop's thread owns a log. Work that waits for a disk goes to worker threads as objects that touch
files only: `FlushPlan.sync`, `ColdPages.warm`, `Removal.delete`. Reads (`LogReads`) run in the loop's thread.
Every error of a disk is a StorageError.

Cost is per batch and does not grow with the log: the hot path is `append` and `read`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.model.errors import OffsetOutOfRange
from penstock.ports import Buffer, Clock, Files, Rng
from penstock.storage.appending import Appended, Appender
from penstock.storage.config import LogConfig
from penstock.storage.deferred_snapshot import DeferredSnapshot
from penstock.storage.durability import Durability
from penstock.storage.flush import FlushPlan
from penstock.storage.guards import VerificationGuard
from penstock.storage.health import Health
from penstock.storage.loading import ClosedLog, Loaded, load
from penstock.storage.producer_loading import hold_back_undecided
from penstock.storage.producers import AppendOrigin, ProducerState
from penstock.storage.reads import LogReads
from penstock.storage.remote_tier import RemoteTier
from penstock.storage.retention import Retention
from penstock.storage.roll_snapshots import ENCODED_AT_ONCE
from penstock.storage.rules import Rules
from penstock.storage.seals import NO_OWNER, LogOwner
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentCache, Segments
from penstock.storage.store import SegmentStore
from penstock.storage.swap import Swap
from penstock.storage.truncation import Truncation
from penstock.storage.validation import LongWalk

__all__ = ["AppendOrigin", "Appended", "Log", "LongWalk"]


class Log(LogReads):
    """The log in one directory.

    Invariant: explained_start <= log_start_offset <= local_log_start_offset <= high_watermark <= end_offset,
    and recovery_point <= end_offset. Records below the high watermark are committed; the log's owner moves
    it.

    Why it has more than 25 methods: all users of a log share one set of offsets, and read them on the hot
    path without a call. The methods move these offsets together and leave the work to the parts of the log.
    """

    __slots__ = (
        "_clock",
        "_truncation",
        "config",
        "durability",
        "explained_start",
        "high_watermark",
        "leader_epochs",
        "opened_end",
        "owner",
        "producers",
        "retention",
        "retention_changed",
        "save_start",
        "saved_local_start",
        "saved_start",
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
        owner: LogOwner = NO_OWNER,
        local_log_start_offset: int = 0,
    ) -> Log:
        """Open or create the log in `path`; unless closed cleanly, recover from `recovery_point` on.

        With `start_recorded`, no segment beyond `log_start_offset` was ever removed: a missing one is damage.
        `local_log_start_offset` is that of a log whose earlier records are in the archive of tiered storage.
        `closed` is what the log was when it was closed in good order, `high_watermark` the recorded one.
        Files beside the log that are of another partition than `owner` are not used.
        """
        health = health or Health()
        health.check()
        try:
            known = recovery_point, log_start_offset, start_recorded, closed, high_watermark, owner
            loaded = load(files, path, config, clock, clean, *known, local_log_start_offset)
        except OSError as e:
            raise health.path_failed(e, f"cannot open {path}") from e
        store = SegmentStore(files, path, loaded.segments, cache or SegmentCache(), rng, owner)
        store.directory_dirty = loaded.changed
        store.unsynced = loaded.unsynced
        store.snapshots.missing = loaded.without_snapshot
        return cls(store, config, clock, loaded, health)

    def __init__(
        self, store: SegmentStore, config: LogConfig, clock: Clock, loaded: Loaded, health: Health
    ) -> None:
        self._store = store
        self.path = store.path
        self.owner: LogOwner = store.owner
        self.segments: Segments = store.segments
        self._clock = clock
        self.health = health
        self.leader_epochs = loaded.epochs
        self.producers = loaded.producers
        self.recovery = loaded.report
        self.recovery.forget_before(loaded.local_log_start_offset)
        self.end_offset = loaded.end_offset
        #: the end when the log was opened, and whether the retention by time was changed since then
        self.opened_end, self.retention_changed = loaded.end_offset, False
        self.log_start_offset = loaded.log_start_offset
        #: The log start that followers adopt: up to here retention or DeleteRecords has deleted records, here
        #: or at the leader. Below the log start if all records of it were lost.
        self.explained_start = loaded.log_start_offset
        #: the start of this broker's own copy; `remote` has what lies between the log start and it
        self.local_log_start_offset = loaded.local_log_start_offset
        self.remote: RemoteTier | None = None
        self.high_watermark = loaded.local_log_start_offset
        #: writes the log start to the disk at once; None for a log whose start no checkpoint has
        self.save_start: Callable[[], None] | None = None
        #: The log start that the disk has. Segments are removed only below it, so that a segment that is
        #: missing above it is known to be lost.
        self.saved_start = 0
        #: the local log start that the disk has, if it is above its log start
        self.saved_local_start = 0
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
        before = self.config
        self.retention_changed |= (before.delete, before.retention_ms) != (config.delete, config.retention_ms)
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
        with self.health.disk(f"open {self.path}"):
            hold_back_undecided(self.producers, self._store, self.high_watermark)

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
        # A snapshot that is being written is not used.
        self.producers.viewed_by = None
        self._store.release()

    # -- segments

    def defer_snapshots(
        self, write_later: Callable[[DeferredSnapshot], None], beyond: int = ENCODED_AT_ONCE
    ) -> None:
        """At rolls, leave the snapshot of more than `beyond` producers to `write_later`."""
        store = self._store
        store.snapshots.beyond = beyond
        store.snapshots.write_later = lambda offset: write_later(DeferredSnapshot(self, store, offset))

    def roll(self) -> None:
        """Seal the last segment, unless it is empty, and start a new one at the end of the log."""
        with self.health.disk(f"roll {self.path}"):
            self.appender.roll(self.end_offset, self._clock.now_ms())

    def swap(self, replaced: Iterable[int]) -> Swap:
        """The exchange of the segments at the offsets `replaced` for what compaction made of them."""
        return Swap(self._store.files, self.path, self.health, replaced)

    def replace_segments(self, swap: Swap, old: Iterable[int], new: Iterable[tuple[int, int]]) -> None:
        """Move what `swap` has committed, (base offset, size) each, in the place of the segments at `old`."""
        swap.move()
        self._store.replace_at(set(old), new, self._clock.now_ms())

    def lose_segment(self, segment: Segment) -> None:
        """Leave out a segment whose file is gone; an empty last one is created again."""
        with self.health.disk(f"make a segment of {self.path}"):
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
            self.log_start_offset = offset
            self.local_log_start_offset = max(self.local_log_start_offset, offset)
            self.recovery.forget_before(self.local_log_start_offset)
            if offset < self.local_log_start_offset:
                # No segment goes, with which the leader epochs of other logs do.
                self.leader_epochs.forget_before(offset)
        self.explained_start = max(offset, self.explained_start)

    def advance_local_start(self, offset: int) -> None:
        """Leave the records below `offset` to the archive, which has been proven to have them.

        Their segments may be removed once the local log start is on the disk. It never moves back.
        """
        assert offset <= self.high_watermark, "only committed records are in an archive"
        if offset > self.local_log_start_offset:
            self.local_log_start_offset = offset
            self.recovery.forget_before(offset)

    def begin_in_archive(self, offset: int) -> None:
        """The archive has the records from `offset` to the first segment of a log that has lost its start."""
        assert self.explained_start < self.log_start_offset == self.local_log_start_offset
        self.log_start_offset = self.explained_start = offset

    @property
    def lacks_history(self) -> bool:
        """Returns true for an empty log behind an archive that does not know the leader epochs before it.

        Then a crash has interrupted `restart_behind`.
        """
        start = self.local_log_start_offset
        return (
            self.log_start_offset < start == self.end_offset
            and self.leader_epochs.epoch_of(start - 1) is None
        )

    def attach_remote(self, remote: RemoteTier, log_start_offset: int) -> None:
        """Have `remote` answer reads from `log_start_offset` to the start of the local segments."""
        assert log_start_offset <= self.local_log_start_offset
        self.remote = remote
        self.log_start_offset = self.explained_start = log_start_offset

    # -- the end of the log

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that reaches `offset`: a follower removes what its leader does not have."""
        self._truncation.truncate_to(offset)

    def reset_to(self, offset: int) -> None:
        """Drop everything and start over, empty, at `offset`."""
        self._truncation.reset_to(offset)

    def restart_behind(
        self, offset: int, log_start_offset: int, epochs: Sequence[int], producers: Sequence[ProducerState]
    ) -> None:
        """Drop everything and start over, empty, at `offset`, to which the archive has all records.

        `epochs`, as `LeaderEpochs.within` returns them, and `producers` are those of the archive at `offset`.
        The caller syncs the log before it appends. After a crash before that, the log `lacks_history`.
        """
        self._truncation.restart_behind(offset, log_start_offset, epochs, producers)

    # -- leader epochs

    @property
    def open_transactions(self) -> int:
        """The number of transactions with records and without a marker."""
        return len(self.producers.ongoing)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch`, the offset behind its last record), (-1, -1) if unknown."""
        return self.leader_epochs.end_offset(epoch, self.end_offset)
