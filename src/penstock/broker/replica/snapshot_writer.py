"""Writes the producer snapshots that rolls have left for later, one at a time in each data directory."""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.broker.base.logs import get_logger
from penstock.broker.base.steps import in_slices
from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.deferred_snapshot import DeferredSnapshot

__all__ = ["SnapshotWriter"]

log = get_logger("snapshots")


class SnapshotWriter:
    """Owned by the `Flusher` of the data directory. A log has at most one snapshot here."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._waiting: deque[DeferredSnapshot] = deque()
        self._task: asyncio.Task[None] | None = None

    def add(self, snapshot: DeferredSnapshot) -> None:
        self._waiting.append(snapshot)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Return when all snapshots are written; nothing may be rolled from now on."""
        if self._task is not None:
            await self._task

    def abandon(self) -> None:
        """Write no more, as if the process had ended."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            while self._waiting:
                snapshot = self._waiting.popleft()
                try:
                    await self._write(snapshot)
                except StorageError as e:
                    snapshot.abandon()
                    log.error("snapshot_not_written", path=snapshot.path, error=str(e))
        finally:
            self._task = None

    async def _write(self, snapshot: DeferredSnapshot) -> None:
        if not snapshot.is_current():
            return
        pieces = await in_slices(snapshot.encode())
        if snapshot.is_current():
            await self._workers.in_thread(snapshot.write, pieces)
        if snapshot.is_current():
            snapshot.install()
        else:
            snapshot.abandon()
