"""Syncs of a log without blocking the event loop.

The loop's thread draws up a plan (which files have unsynced bytes), a worker thread carries it out, and the
loop's thread then moves the recovery point. A plan that was overtaken by a truncation moves nothing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Protocol

from penstock.model.errors import StorageError
from penstock.ports import Files
from penstock.storage.health import Health

__all__ = ["ClosedFile", "FlushPlan", "Unsynced"]


class Unsynced(Protocol):
    """Something with bytes that the disk may not have; an open file is one."""

    def sync(self) -> None: ...


class ClosedFile:
    """A file that was written by a process that is gone: it takes no descriptor until it is synced."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def sync(self) -> None:
        # Retention may have removed the file, which then needs no sync.
        with suppress(FileNotFoundError):
            file = self._files.open(self._path)
            file.sync()
            file.close()


class FlushPlan:
    """The files to sync so that everything below `end_offset` survives a power loss."""

    __slots__ = (
        "_checkpoint",
        "_directory",
        "_files",
        "_health",
        "_sync_directory",
        "end_offset",
        "generation",
        "handles",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        health: Health,
        *,
        handles: list[Unsynced],
        sync_directory: bool,
        checkpoint: tuple[str, bytes] | None,
        end_offset: int,
        generation: int,
    ) -> None:
        self._files = files
        self._directory = directory
        self._health = health
        #: files with unsynced bytes
        self.handles = handles
        self._sync_directory = sync_directory
        #: path and content of the leader epochs, where they changed
        self._checkpoint = checkpoint
        self.end_offset = end_offset
        self.generation = generation

    def sync(self, synced: bool = False) -> None:
        """Runs in a worker thread; StorageError means that the data directory is offline now.

        Where everything on the volume has been `synced` since the plan was drawn up, only the rest remains.
        """
        try:
            if not synced:
                self._sync()
            self._write_checkpoint()
        except StorageError:
            # A partition may be removed while it is being synced: then there is nothing left to keep.
            if self._health.offline is not None or self._files.is_dir(self._directory):
                raise

    def _sync(self) -> None:
        try:
            for handle in self.handles:
                handle.sync()
            if self._sync_directory:
                self._files.sync_dir(self._directory)
        except OSError as e:
            raise self._health.sync_failed(e, f"cannot sync {self._directory}") from e

    def _write_checkpoint(self) -> None:
        if self._checkpoint is not None:
            try:
                self._files.write_atomic(*self._checkpoint)
            except OSError as e:
                raise self._health.failed(e, f"cannot write {self._checkpoint[0]}") from e
