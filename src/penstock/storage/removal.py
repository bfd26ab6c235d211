"""Removing files in two steps: out of the way at once, off the disk later.

The first step is a rename on the event loop, so that nothing finds the files again, not even after a crash.
The second frees their space, which takes a disk its time: `delete` runs in a worker thread, after
`file.delete.delay.ms`, when slow readers are done with them.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from penstock.ports import Files
from penstock.storage.segment import Segment
from penstock.storage.segment_files import SUFFIXES

__all__ = ["DELETED", "Removal", "set_aside"]

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
