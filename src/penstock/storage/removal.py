"""Removing files in two steps: out of the way at once, off the disk later.

The first step is a rename on the event loop, so that nothing finds the files again, not even after a crash.
The second frees their space, which takes a disk its time: `delete` runs in a worker thread, after
`file.delete.delay.ms`, when slow readers are done with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from penstock.model.errors import StorageError
from penstock.ports import Files
from penstock.storage.health import Health
from penstock.storage.segment import Segment
from penstock.storage.segment_files import SUFFIXES

__all__ = ["DELETED", "PartitionRemoval", "Removal", "Removals", "set_aside"]

DELETED: Final = ".deleted"


class Removal:
    """Files that are out of the way and wait for their deletion."""

    __slots__ = ("_files", "_paths", "base_offset", "size")

    def __init__(self, files: Files, paths: list[str], base_offset: int, size: int) -> None:
        self._files = files
        self._paths = paths
        #: of the segment that this was
        self.base_offset = base_offset
        self.size = size

    def delete(self) -> None:
        """Free the space; ignores files that are gone already. Runs in a worker thread."""
        for path in self._paths:
            with suppress(FileNotFoundError):
                self._files.remove(path)


def set_aside(files: Files, segments: Iterable[Segment]) -> list[Removal]:
    """Take the files of `segments`, which their log has let go of, out of the way."""
    removals = []
    for segment in segments:
        paths = []
        for suffix in SUFFIXES:
            path = segment.path(suffix)
            with suppress(FileNotFoundError):
                files.rename(path, path + DELETED)
                paths.append(path + DELETED)
        removals.append(Removal(files, paths, segment.base_offset, segment.size))
    return removals


class PartitionRemoval:
    """Partitions that their directory has let go of; a worker thread does the rest.

    `set_aside` frees their paths for new folders, `delete` frees their space.
    """

    __slots__ = ("_aside", "_files", "_health", "_path")

    def __init__(self, files: Files, health: Health, path: str, aside: str) -> None:
        self._files = files
        self._health = health
        self._path = path
        self._aside = aside

    def set_aside(self) -> None:
        self._health.check()
        try:
            # One that could not even be made is not there.
            with suppress(FileNotFoundError):
                self._files.rename(self._path, self._aside)
        except OSError as e:
            raise self._health.failed(e, f"cannot remove {self._path}") from e

    @property
    def parent(self) -> str:
        """The folder that has the path."""
        return self._path.rpartition("/")[0]

    def sync(self) -> None:
        """Make the removals from `parent` durable: after a power loss none of the partitions is back."""
        try:
            with suppress(FileNotFoundError):  # the folder of a topic is gone with its last partition
                self._files.sync_dir(self.parent)
        except OSError as e:
            raise self._health.failed(e, f"cannot sync {self.parent}") from e

    def delete(self) -> None:
        with suppress(FileNotFoundError):
            self._files.rmtree(self._aside)


class Removals:
    """The removals of several partitions, as one."""

    __slots__ = ("_removals",)

    def __init__(self, removals: Iterable[PartitionRemoval]) -> None:
        self._removals = list(removals)

    def set_aside(self) -> list[StorageError]:
        """Set each aside, durably, or say why not; those are not deleted.

        A partition that came back after a power loss could meet a newer one in another data directory.
        """
        errors, done = [], []
        for removal in self._removals:
            try:
                removal.set_aside()
            except StorageError as e:
                errors.append(e)
            else:
                done.append(removal)
        self._removals = done
        for removal in {each.parent: each for each in done}.values():
            try:
                removal.sync()
            except StorageError as e:
                errors.append(e)
        return errors

    def delete(self) -> None:
        for removal in self._removals:
            removal.delete()
