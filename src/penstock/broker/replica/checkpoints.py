"""Writes the checkpoints of data directories: recovery points, log starts and high watermarks.

The files of one directory are written one at a time, so that the newest values are written last.
"""

from __future__ import annotations

import asyncio

from penstock.broker.base.logs import get_logger
from penstock.broker.base.steps import in_slices
from penstock.model.errors import StorageError
from penstock.ports import Workers
from penstock.storage.directory import DataDirectory

__all__ = ["Checkpoints"]

log = get_logger("partitions")


class Checkpoints:
    """The checkpoints of all open directories. Failed directories are left out."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._writing: dict[DataDirectory, asyncio.Lock] = {}

    def add(self, directory: DataDirectory) -> None:
        self._writing[directory] = asyncio.Lock()

    async def write_all(self) -> None:
        """Checkpoint recovery points and log starts, so that recovery skips what is on the disk."""
        for directory in self._writing:
            if directory.health.offline is None:
                try:
                    await self.write(directory)
                except StorageError as e:
                    log.error("checkpoint_failed", directory=directory.path, error=str(e))

    async def write(self, directory: DataDirectory) -> None:
        """As `write_all`, for one directory."""
        async with self._writing[directory]:
            checkpoint = await in_slices(directory.checkpoint_in_steps())
            await self._workers.in_thread(checkpoint.write)
            directory.checkpointed(checkpoint)

    async def write_high_watermarks(self) -> None:
        """Checkpoint high watermarks, so that replicas have them after a restart."""
        for directory in self._writing:
            if directory.health.offline is None:
                async with self._writing[directory]:
                    checkpoint = directory.checkpoint_high_watermarks()
                    if checkpoint is not None:
                        await self._workers.in_thread(checkpoint.write)
