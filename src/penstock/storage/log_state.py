"""The state of a log: what is committed, what is durable, what is kept, and where it ends.

Offsets: log_start_offset <= high_watermark <= end_offset and recovery_point <= end_offset. Below the recovery
point everything is on the disk; below the high watermark everything is committed, which the log is told
(`advance_high_watermark`) and never decides. `Log` adds what clients do: appending and reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from penstock.model.errors import OffsetOutOfRange, StorageError
from penstock.ports import Clock
from penstock.storage.config import LogConfig
from penstock.storage.flush import ClosedFile, FlushPlan, Unsynced
from penstock.storage.health import Health
from penstock.storage.loading import EPOCHS_FILE, Loaded, load_producers, prune_snapshots
from penstock.storage.producers import ProducerStates
from penstock.storage.removal import Removal
from penstock.storage.retention import expired_segments, segments_before
from penstock.storage.rules import Rules, rules_of, rules_without_clock
from penstock.storage.segment import Segment
from penstock.storage.segments import Segments
from penstock.storage.snapshot import encode_snapshot
from penstock.storage.store import SegmentStore
from penstock.storage.swap import Swap

__all__ = ["NOTHING_NEW", "LogState"]

#: (first offset, end offset, batches), of no batch
NOTHING_NEW: Final = (-1, -1, b"")


class LogState:
    """What a log is, apart from what is in it."""

    __slots__ = (
        "_clock",
        "_clock_trusted",
        "_generation",
        "_health",
        "_index_interval",
        "_newest",
        "_refused_at",
        "_rules",
        "_store",
        "before_truncation",
        "config",
        "end_offset",
        "file_lost",
        "high_watermark",
        "leader_epochs",
        "local_log_start_offset",
        "log_start_offset",
        "path",
        "producers",
        "recovery",
        "recovery_point",
        "save_start",
        "saved_start",
        "segments",
        "unsynced_identity",
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
        self.recovery.forget_before(loaded.log_start_offset)
        self.end_offset = loaded.end_offset
        self.log_start_offset = loaded.log_start_offset
        #: where this broker's own copy starts; the same as long as nothing is tiered
        self.local_log_start_offset = loaded.log_start_offset
        self.high_watermark = loaded.log_start_offset
        self.recovery_point = loaded.recovery_point
        #: called before bytes below the recovery point that is on the disk are cut
        self.before_truncation: Callable[[], None] | None = None
        #: writes the log start to the disk at once; None for a log whose start no checkpoint keeps
        self.save_start: Callable[[], None] | None = None
        #: The log start that the disk has. Segments are removed only below it, so that a segment that is
        #: missing above it is known to be lost.
        self.saved_start = 0
        #: whether a read found a segment file gone, which the scrubber has yet to look at
        self.file_lost = False
        #: the file with the folder's identity, which the first flush of records syncs; None when it is synced
        self.unsynced_identity: Unsynced | None = None
        self._generation = 0
        #: what a client's request appended last, if it is little: where it is, where it ends, its bytes
        self._newest = NOTHING_NEW
        #: where the log ended when the disk last refused an append
        self._refused_at = -1
        self._clock_trusted = True
        self.reconfigure(config)

    def reconfigure(self, config: LogConfig) -> None:
        """Take a new config; it holds for what is appended, rolled and retained from now on."""
        self.config = config
        self._rules = rules_of(config) if self._clock_trusted else rules_without_clock(config)
        self._index_interval = config.index_interval_bytes
        self._store.reconfigure(config)

    @property
    def rules(self) -> Rules:
        """What `append` checks a client's batches by."""
        return self._rules

    def trust_clock(self, trusted: bool) -> None:
        """Check timestamps against the wall clock, or accept all of them while the clock is not trusted."""
        if trusted != self._clock_trusted:
            self._clock_trusted = trusted
            self._rules = rules_of(self.config) if trusted else rules_without_clock(self.config)

    @contextmanager
    def _disk(self, doing: str) -> Iterator[None]:
        """Refuse if the directory is offline; make an OSError what it means for the directory."""
        self._health.check()
        try:
            yield
        except OSError as e:
            raise self._health.failed(e, f"cannot {doing} {self.path}") from e

    @property
    def health(self) -> Health:
        """Of its data directory."""
        return self._health

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
        if offset > self.end_offset:
            offset = self.end_offset
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
        store, epochs = self._store, self.leader_epochs
        checkpoint = (f"{self.path}/{EPOCHS_FILE}", epochs.encode()) if epochs.dirty else None
        handles = store.unsynced_files(self.end_offset > self.recovery_point)
        if self.unsynced_identity is not None and self.end_offset:
            handles.append(self.unsynced_identity)
            self.unsynced_identity = None
        plan = FlushPlan(
            store.files,
            self.path,
            self._health,
            handles=handles,
            sync_directory=store.directory_dirty,
            checkpoint=checkpoint,
            end_offset=self.end_offset,
            generation=self._generation,
        )
        epochs.dirty = store.directory_dirty = False
        return plan

    def close_file(self) -> None:
        """Close the file of the last segment; the next use opens it again."""
        self.segments.active.close_file()

    def flush_failed(self, plan: FlushPlan) -> None:
        """`plan` has not been carried out, or in part: the next one has to do what it left."""
        self._store.unsynced += plan.handles
        self.leader_epochs.dirty = self._store.directory_dirty = True

    def flushed(self, plan: FlushPlan) -> None:
        """`plan` has been carried out."""
        if plan.generation == self._generation and plan.end_offset > self.recovery_point:
            self.recovery_point = plan.end_offset

    def seal(self) -> FlushPlan:
        """Write what the next `open` needs to trust the log, and say what has to be synced for that to last.

        A log that nothing was ever appended to needs nothing: it opens the same without any of its files.
        No file stays open: the logs of a broker are sealed before the first of them is synced, and together
        they may have more files than the process may have descriptors.
        """
        self._health.check()
        store = self._store
        if not self.end_offset and not store.unsynced:
            store.directory_dirty = False
            return self.flush_plan()
        with self._disk("close"):
            written = self.segments.active.save_indexes()
            if self.end_offset > self.log_start_offset and not store.has_snapshot(self.end_offset):
                snapshot = encode_snapshot(self.producers.states)
                written.append(store.write_snapshot(self.end_offset, snapshot))
        store.unsynced += [ClosedFile(store.files, file.path) for file in written]
        self.close_file()
        return self.flush_plan()

    def close(self, clean: bool = True) -> None:
        """Let go of the files; `clean` brings everything to the disk first, so that `open` may trust it."""
        if clean:
            plan = self.seal()
            plan.sync()
            self.flushed(plan)
        self._store.release()

    # -- segments

    def roll(self) -> None:
        """Seal the last segment, unless it is empty, and start a new one at the end of the log."""
        with self._disk("roll"):
            self._roll(self.end_offset, self._clock.now_ms())

    def _roll(self, first_offset: int, now_ms: int) -> None:
        """Have a new segment for `first_offset` and what follows it."""
        self._store.roll(self.end_offset, first_offset, now_ms, encode_snapshot(self.producers.states))

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
            self.recovery.forget_before(offset)

    def apply_retention(self, now_ms: int | None, *, cached_only: bool = False) -> list[Removal]:
        """Expire segments, save the log start and remove them; `delete` each in a worker thread, later.

        It may wait for the disk. A broker with many logs calls the steps one by one, and saves all log starts
        at once.
        """
        if not self.expire(now_ms, cached_only=cached_only):
            return []
        if self.save_start is not None:
            self.save_start()
        return self.remove_expired()

    def expire(self, now_ms: int | None, *, cached_only: bool = False) -> bool:
        """Move the log start behind segments that are too old or too many.

        With None for `now_ms` the time is not known, and no segment is too old.
        Returns true if there are segments to remove, once the start has been saved.
        """
        with self._disk("apply retention to"):
            expired = expired_segments(
                self._store.files,
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                end_offset=self.end_offset,
                now_ms=now_ms,
                cached_only=cached_only,
            )
            if not expired:
                return False
            if expired[-1] is self.segments.active:
                self._roll(self.end_offset, self._clock.now_ms())
        following = self.segments.after(expired[-1])
        assert following is not None, "the last segment does not expire"
        self._start_at(following.base_offset)
        return True

    def has_unexpired(self, now_ms: int) -> bool:
        """Whether the log has records that its own retention would keep."""
        if self.end_offset <= self.log_start_offset:
            return False
        with self._disk("apply retention to"):
            expired = expired_segments(
                self._store.files,
                self.segments,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.end_offset,
                end_offset=self.end_offset,
                now_ms=now_ms,
                cached_only=False,
            )
        kept = self.segments.after(expired[-1]) if expired else self.segments.first
        return kept is not None and (kept is not self.segments.active or kept.size > 0)

    def remove_expired(self) -> list[Removal]:
        """Let go of the segments that lie before the log start that was saved."""
        start = self.log_start_offset if self.save_start is None else self.saved_start
        gone = segments_before(self.segments, min(start, self.log_start_offset))
        if not gone:
            return []
        with self._disk("apply retention to"):
            removed = self._store.remove(gone)
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

    def lose_segment(self, segment: Segment) -> None:
        """Leave out a segment whose file is gone; an empty last one is made anew."""
        if segment is self.segments.active:
            assert not segment.size, "a last segment with batches is rolled first"
            with self._disk("make a segment of"):
                self._store.renew_active(self._clock.now_ms())
        else:
            self._store.replace([segment], [])
        segment.release()

    # -- the near end

    def truncate_to(self, offset: int) -> None:
        """Cut every batch that reaches `offset`: what a follower does with what its leader does not have."""
        if offset >= self.end_offset:
            return
        offset = self.recovery.end_before(offset)
        with self._disk("truncate"):
            segment, position, end_offset = self._store.cut_point(offset)
        if end_offset <= self.log_start_offset:
            # Nothing is left, and the log may have started within the batch that is cut.
            self.reset_to(min(offset, self.log_start_offset))
            return
        with self._disk("truncate"):
            self._lower_recovery_point(end_offset)
            files = self._store.files
            snapshots = prune_snapshots(files, self.path, end_offset)
            producers = load_producers(self.segments, snapshots, end_offset, files, self.path)
        try:
            self._store.cut(segment, position, end_offset)
        except OSError as e:
            # Some of it may be gone: only opening the log again can tell where it ends.
            raise self._health.left_half_done(e, f"cannot truncate {self.path}") from e
        self.producers = producers
        self.end_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self.producers.replicated_to(self.high_watermark)
        self.leader_epochs.forget_from(end_offset)
        self.recovery.forget_from(end_offset)

    def reset_to(self, offset: int) -> None:
        """Drop everything and start over, empty, at `offset`."""
        before = self.log_start_offset
        self.log_start_offset = self.local_log_start_offset = offset
        try:
            with self._disk("reset"):
                # Both before the segments go: after a crash in between, what is left ends before the start.
                self._lower_recovery_point(0)
                if self.save_start is not None and self.saved_start < offset:
                    self.save_start()
                self._store.restart(offset, self._clock.now_ms())
                prune_snapshots(self._store.files, self.path, -1)
        except StorageError:
            self.log_start_offset = self.local_log_start_offset = before
            raise
        self.producers = ProducerStates()
        self.leader_epochs.clear()
        self.recovery.forget_from(-1)
        self.end_offset = self.high_watermark = self.recovery_point = self.producers.end_offset = offset

    def _lower_recovery_point(self, offset: int) -> None:
        """Before what was durable goes: a crash must not miss it, and no flush in flight may count."""
        self._generation += 1
        self._newest = NOTHING_NEW
        self.recovery_point = min(self.recovery_point, offset)
        # Even where it was that low: the last time the disk may not have taken it.
        if self.before_truncation is not None:
            self.before_truncation()

    def delete(self) -> None:
        """Let go of the log and remove its directory."""
        with self._disk("delete"):
            self._store.release()
            self._store.files.rmtree(self.path)
