"""Snapshots of many producers, which are written after the roll that needs them.

A roll encodes the snapshot of a few producers at once. For many, which take too long, it notes their states
(`ProducerStates.view`), and its owner has them encoded in steps and written by a worker thread. Until then
the log does without the snapshot: a start begins with an earlier one and replays more batches, and retention
keeps the segments that this takes.

The file is written beside its place and renamed by `install`, unless the log was truncated or repaired
meanwhile: its producers are another object then. Opening a log removes what a crash left.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final, Protocol

from penstock.model.errors import StorageError
from penstock.model.steps import Steps
from penstock.ports import Files
from penstock.records.checksum import crc32c
from penstock.storage.health import Health
from penstock.storage.producers import ProducerStates
from penstock.storage.sealing import seal_snapshot
from penstock.storage.segment_files import SNAPSHOT, file_name
from penstock.storage.snapshot import encode_in_steps
from penstock.storage.store import SegmentStore

__all__ = ["DeferredSnapshot"]

#: another suffix than that of repairs, which may write the same snapshot
_PREPARED: Final = ".deferred.tmp"


class SnapshottedLog(Protocol):
    """A log as its deferred snapshots use it."""

    @property
    def producers(self) -> ProducerStates: ...
    @property
    def health(self) -> Health: ...


class DeferredSnapshot:
    """The snapshot at the start of one segment: `encode`, then `write`, then `install` or `abandon`."""

    __slots__ = ("_checksum", "_files", "_log", "_producers", "_states", "_store", "offset", "path")

    def __init__(self, log: SnapshottedLog, store: SegmentStore, offset: int) -> None:
        """At the roll: the producers of `log` are those at `offset`."""
        self.offset = offset
        self._log = log
        self._store = store
        self._files: Files = store.files
        self.path = f"{store.path}/{file_name(offset)}{SNAPSHOT}"
        self._producers = log.producers
        self._states = log.producers.view(self)
        self._checksum = 0

    def is_current(self) -> bool:
        """Returns false after a truncation, a repair, or the end of the log."""
        return self._log.producers is self._producers and self._producers.viewed_by is self

    def encode(self) -> Steps[list[bytes]]:
        """The pieces of the snapshot."""
        pieces = yield from encode_in_steps(self._states, self._store.owner, self.offset)
        self._states = []
        for piece in pieces:
            self._checksum = crc32c(piece, self._checksum)
        return pieces

    def write(self, pieces: list[bytes]) -> None:
        """Runs in a worker thread. StorageError if it fails; the log has lost nothing then."""
        health, prepared = self._log.health, self.path + _PREPARED
        with health.disk(f"write {self.path}"):
            file = self._files.open(prepared, create=True)
            file.truncate(0)
            file.append(b"".join(pieces))
        try:
            file.sync()
        except OSError as e:
            raise health.sync_failed(e, f"cannot sync {self.path}") from e
        finally:
            file.close()

    def install(self) -> None:
        """Give the file its name, and its checksum to the seal of the segment before it."""
        assert self.is_current(), "the producers have changed"
        store = self._store
        with self._log.health.disk(f"rename {self.path}"):
            self._files.rename(self.path + _PREPARED, self.path)
            store.directory_dirty = True
            sealed = store.segments.holding(self.offset - 1)
            seal = seal_snapshot(sealed, self._files, store.owner, self.offset, self._checksum)
            if seal is not None:
                store.unsynced.append(seal)
        self._producers.viewed_by = None
        store.snapshots.written(self.offset, store.segments.active, self._producers)

    def abandon(self) -> None:
        """Remove what was written. A later roll writes another snapshot."""
        if self._producers.viewed_by is self:
            self._producers.viewed_by = None
        with suppress(StorageError), self._log.health.disk(f"remove {self.path}"):
            self._files.remove(self.path + _PREPARED)
