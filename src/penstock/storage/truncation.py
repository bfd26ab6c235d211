"""Truncation of a log: cuts its end, or drops everything.

Invariant: offsets, leader epochs, producers and reports of damage of the log agree with its batches after
every call, whether it succeeds or raises. Where an error leaves the files half truncated, the directory goes
offline (`Health.left_half_done`), because only a recovery finds the end of the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from penstock.model.errors import StorageError
from penstock.ports import Clock
from penstock.storage.appending import NOTHING_NEW, Appender
from penstock.storage.durability import Durability
from penstock.storage.epochs import EPOCHS_FILE, LeaderEpochs
from penstock.storage.flush import ClosedFile
from penstock.storage.health import Health
from penstock.storage.producer_loading import hold_back_undecided, load_producers, prune_snapshots
from penstock.storage.producers import ProducerState, ProducerStates
from penstock.storage.recovery_report import RecoveryReport
from penstock.storage.store import SegmentStore

__all__ = ["Truncation"]


class TruncatedLog(Protocol):
    """A log as its truncation uses it."""

    end_offset: int
    high_watermark: int
    log_start_offset: int
    local_log_start_offset: int
    explained_start: int
    producers: ProducerStates

    @property
    def leader_epochs(self) -> LeaderEpochs: ...
    @property
    def recovery(self) -> RecoveryReport: ...
    @property
    def durability(self) -> Durability: ...
    @property
    def appender(self) -> Appender: ...
    @property
    def save_start(self) -> Callable[[], None] | None: ...
    @property
    def saved_start(self) -> int: ...
    @property
    def saved_local_start(self) -> int: ...


class Truncation:
    """Truncates one log. Owned by its `Log`."""

    __slots__ = ("_clock", "_health", "_log", "_store")

    def __init__(self, log: TruncatedLog, store: SegmentStore, clock: Clock, health: Health) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._health = health

    def truncate_to(self, offset: int) -> None:
        """Remove every batch that reaches `offset`."""
        log, store = self._log, self._store
        if offset >= log.end_offset:
            return
        offset = log.recovery.end_before(offset)
        with self._health.disk(f"truncate {store.path}"):
            segment, position, end_offset = store.cut_point(offset)
        if end_offset <= log.log_start_offset:
            # Nothing is left, and the log may have started within the batch that is cut.
            self.reset_to(min(offset, log.log_start_offset))
            return
        if offset < log.local_log_start_offset:
            # The archive has another history than the leader: all of it is fetched again.
            self.reset_to(log.log_start_offset)
            return
        with self._health.disk(f"truncate {store.path}"):
            self._prepare(end_offset)
            snapshots = prune_snapshots(store.files, store.path, end_offset)
            producers = load_producers(
                store.segments, snapshots, end_offset, store.files, store.path, store.owner
            )
            store.prepare_cut(segment)
        try:
            store.cut(segment, position, end_offset)
        except OSError as e:
            # Some bytes may be gone: only a recovery finds the end of the log.
            raise self._health.left_half_done(e, f"cannot truncate {store.path}") from e
        log.producers = producers
        log.end_offset = end_offset
        log.high_watermark = min(log.high_watermark, end_offset)
        producers.replicated_to(log.high_watermark)
        with self._health.disk(f"truncate {store.path}"):
            hold_back_undecided(producers, store, log.high_watermark)
        log.leader_epochs.forget_from(end_offset)
        log.recovery.forget_from(end_offset)

    def restart_behind(
        self, offset: int, log_start_offset: int, epochs: Sequence[int], producers: Sequence[ProducerState]
    ) -> None:
        """See `Log.restart_behind`."""
        log, store = self._log, self._store
        # First of all: with the leader epochs of the old log, an empty one would look as if it were done.
        with self._health.disk(f"reset {store.path}"), suppress(FileNotFoundError):
            store.files.remove(f"{store.path}/{EPOCHS_FILE}")
        # The leader gave this log start, so it is explained.
        log.explained_start = log_start_offset
        self.reset_to(offset, log_start_offset)
        log.producers.load(list(producers), offset)
        with self._health.disk(f"reset {store.path}"):
            _, snapshot = store.snapshots.write(offset, log.producers)
            store.unsynced.append(ClosedFile(store.files, snapshot.path))
            snapshot.close()
        store.directory_dirty = True
        log.leader_epochs.restore(epochs)

    def reset_to(self, offset: int, log_start_offset: int | None = None) -> None:
        """Drop everything and start over, empty, at `offset`.

        Its reason is not known: the leader's next responses have the log start that followers adopt.
        `log_start_offset` is that of a log whose records before `offset` are in the archive.
        """
        log, store = self._log, self._store
        before = log.log_start_offset, log.local_log_start_offset
        log.local_log_start_offset = offset
        log.log_start_offset = offset if log_start_offset is None else log_start_offset
        try:
            with self._health.disk(f"reset {store.path}"):
                # Both come before the removal of segments: after a crash in between, the segments that are
                # left end before the log start.
                self._prepare(0)
                saved = max(log.saved_start, log.saved_local_start)
                # One that is too high would have the next start drop the records that follow.
                if log.save_start is not None and (saved < offset or log.saved_local_start > offset):
                    log.save_start()
                store.restart(offset, self._clock.now_ms())
                prune_snapshots(store.files, store.path, -1)
        except StorageError:
            log.log_start_offset, log.local_log_start_offset = before
            raise
        log.explained_start = min(log.explained_start, log.log_start_offset)
        log.producers = ProducerStates()
        log.leader_epochs.clear()
        log.recovery.forget_from(-1)
        log.end_offset = log.high_watermark = log.producers.end_offset = offset
        log.durability.recovery_point = offset

    def _prepare(self, offset: int) -> None:
        """Drop the cached last append, and lower the recovery point to `offset`, before the removal."""
        self._log.appender.newest = NOTHING_NEW
        self._log.durability.lower(offset)
