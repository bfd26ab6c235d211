"""The durable part of a log: its recovery point, and plans to sync the rest.

Invariant: everything below `recovery_point` is on the disk, and `recovery_point` is never above the end of
the log. A plan that was made before a truncation does not move it.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.storage.epochs import EPOCHS_FILE, LeaderEpochs
from penstock.storage.flush import ClosedFile, FlushPlan, Unsynced
from penstock.storage.health import Health
from penstock.storage.producers import ProducerStates
from penstock.storage.sealing import seal_segment
from penstock.storage.store import SegmentStore

__all__ = ["Durability"]


class Durability:
    """The durable part of one log. Owned by its `Log`, which hands in the offsets."""

    __slots__ = (
        "_epochs",
        "_generation",
        "_health",
        "_store",
        "before_truncation",
        "recovery_point",
        "unsynced_identity",
    )

    def __init__(
        self, store: SegmentStore, epochs: LeaderEpochs, health: Health, recovery_point: int
    ) -> None:
        self._store = store
        self._epochs = epochs
        self._health = health
        self.recovery_point = recovery_point
        #: called before bytes below the recovery point of the last checkpoint are truncated
        self.before_truncation: Callable[[], None] | None = None
        #: the file with the folder's identity, which the first flush of records syncs; None once synced
        self.unsynced_identity: Unsynced | None = None
        #: the number of truncations
        self._generation = 0

    @property
    def generation(self) -> int:
        """The number of truncations: files may have other bytes than before, and the same size."""
        return self._generation

    def plan(self, end_offset: int) -> FlushPlan:
        """The plan to sync everything below `end_offset`, which is the end of the log."""
        store, epochs = self._store, self._epochs
        checkpoint = (f"{store.path}/{EPOCHS_FILE}", epochs.encode(store.owner)) if epochs.dirty else None
        handles = store.unsynced_files(end_offset > self.recovery_point)
        if self.unsynced_identity is not None and end_offset:
            handles.append(self.unsynced_identity)
            self.unsynced_identity = None
        plan = FlushPlan(
            store.files,
            store.path,
            self._health,
            handles=handles,
            sync_directory=store.directory_dirty,
            checkpoint=checkpoint,
            end_offset=end_offset,
            generation=self._generation,
        )
        epochs.dirty = store.directory_dirty = False
        return plan

    def failed(self, plan: FlushPlan) -> None:
        """`plan` was not carried out, or only in part: the next plan includes its files."""
        self._store.unsynced += plan.handles
        self._epochs.dirty = self._store.directory_dirty = True

    def flushed(self, plan: FlushPlan) -> None:
        """`plan` was carried out."""
        if plan.generation == self._generation and plan.end_offset > self.recovery_point:
            self.recovery_point = plan.end_offset

    def lower(self, offset: int) -> None:
        """Before a truncation to `offset`: lower the recovery point, also on the disk."""
        self._generation += 1
        self.recovery_point = min(self.recovery_point, offset)
        # Also if the recovery point was that low: an earlier write of it may have failed.
        if self.before_truncation is not None:
            self.before_truncation()

    def is_untouched(self, end_offset: int) -> bool:
        """Returns true for a log without records whose files need no sync: it opens the same without them."""
        return not (end_offset or self._store.unsynced or self._epochs.dirty)

    def seal(self, producers: ProducerStates, log_start_offset: int, end_offset: int) -> FlushPlan:
        """Write the files that the next start needs to trust the log; the plan syncs them.

        A log without records needs none of its files. No file stays open: all logs of a broker are sealed
        before the first of them is synced, and the process may have fewer descriptors than they have files.
        """
        self._health.check()
        store = self._store
        if not end_offset and not store.unsynced:
            store.directory_dirty = False
            return self.plan(end_offset)
        active = store.segments.active
        with self._health.disk(f"close {store.path}"):
            written = active.save_indexes()
            snapshot = None
            is_saved = store.snapshots.exists(end_offset) and not producers.snapshot_refused
            if end_offset > log_start_offset and not is_saved:
                snapshot, file = store.snapshots.write(end_offset, producers)
                written.append(file)
                store.directory_dirty = True
            seal = seal_segment(active, store.files, store.owner, end_offset, snapshot)
            if seal is not None:
                written.append(seal)
        store.unsynced += [ClosedFile(store.files, file.path) for file in written]
        active.close_file()
        return self.plan(end_offset)
