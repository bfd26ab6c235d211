"""Replaces segments by compacted ones, so that a crash leaves either the old or the new segments.

Compaction writes into the directory `cleaned` of a log, last of all a manifest of the segments to replace.
One rename, `cleaned` to `swap`, commits the swap: after a crash before it the old segments are valid, after a
crash behind it the new ones. The rest only moves files and can be repeated; opening a log does that.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.ports import File, Files
from penstock.storage.checkpoint import format_checkpoint, parse_checkpoint
from penstock.storage.health import Health
from penstock.storage.segment_files import LOG, SNAPSHOT, SUFFIXES, file_name

__all__ = ["CLEANED", "SWAP_DIRECTORIES", "Swap", "finish_interrupted_swaps", "write_manifest"]

CLEANED: Final = "cleaned"
_SWAP: Final = "swap"
#: the directories that an interrupted swap leaves in the directory of a log
SWAP_DIRECTORIES: Final = frozenset({CLEANED, _SWAP})
_MANIFEST: Final = "replaced"


class Swap:
    """One swap of a log: `commit` in a worker thread, `move` on the event loop, `finish` in a thread.

    `abandon`, in a thread, drops a result that is not wanted any more, at any time before `move`.
    """

    __slots__ = ("_directory", "_files", "_health", "_old", "_replaced")

    def __init__(self, files: Files, directory: str, health: Health, replaced: Iterable[int]) -> None:
        self._files = files
        self._directory = directory
        self._health = health
        self._replaced = tuple(replaced)
        #: Closing the last descriptor of a removed file frees its blocks, which may take a while; holding the
        #: old segments open until then leaves that to `finish`.
        self._old: list[File] = []

    def commit(self) -> None:
        """Decide for the new segments; from now on opening the log would put them in place."""
        files, directory = self._files, self._directory
        try:
            self._old = [files.open(f"{directory}/{file_name(base)}{LOG}") for base in self._replaced]
            files.rename(f"{directory}/{CLEANED}", f"{directory}/{_SWAP}")
        except OSError as e:
            raise self._health.failed(e, f"cannot swap segments of {directory}") from e
        self._sync_directory()

    def move(self) -> None:
        """Put the new segments in place; the log must use them from now on."""
        try:
            _move_into_place(self._files, self._directory)
        except OSError as e:
            # Some files are moved and some are not: only opening the log again can sort that out.
            raise self._health.left_half_done(e, f"cannot swap segments of {self._directory}") from e

    def finish(self) -> None:
        """Remove the swap's directory, once the moved files are durable, and release the old segments."""
        self._sync_directory()
        self._remove(_SWAP)
        for file in self._old:
            file.close()

    def abandon(self) -> None:
        self._remove(CLEANED)
        self._remove(_SWAP)

    def _remove(self, name: str) -> None:
        try:
            if self._files.is_dir(f"{self._directory}/{name}"):
                self._files.rmtree(f"{self._directory}/{name}")
        except OSError as e:
            raise self._health.failed(e, f"cannot clean up {self._directory}") from e

    def _sync_directory(self) -> None:
        try:
            self._files.sync_dir(self._directory)
        except OSError as e:
            raise self._health.left_half_done(e, f"cannot sync {self._directory}") from e


def write_manifest(files: Files, cleaned: str, replaced: Iterable[int]) -> None:
    """Declare the content of the directory `cleaned` complete: it replaces the segments at these offsets."""
    new = files.listdir(cleaned)
    bases = {name.partition(".")[0] for name in new}
    obsolete = [
        f"{base}{suffix}"
        for base in map(file_name, replaced)
        for suffix in SUFFIXES
        # the snapshot at the new segment's start is as true as before
        if f"{base}{suffix}" not in new and not (suffix == SNAPSHOT and base in bases)
    ]
    files.write_atomic(f"{cleaned}/{_MANIFEST}", format_checkpoint(obsolete))


def finish_interrupted_swaps(files: Files, directory: str) -> None:
    """Bring the directory of a log, before it is opened, to where it was before a swap or to behind it."""
    if files.is_dir(f"{directory}/{CLEANED}"):
        files.rmtree(f"{directory}/{CLEANED}")
    if files.is_dir(f"{directory}/{_SWAP}"):
        # Without its manifest the swap was over: nothing but the forgetting was interrupted.
        if files.exists(f"{directory}/{_SWAP}/{_MANIFEST}"):
            _move_into_place(files, directory)
            files.sync_dir(directory)
        files.rmtree(f"{directory}/{_SWAP}")


def _move_into_place(files: Files, directory: str) -> None:
    """Move the committed files over the old ones and remove the remaining old files; repeatable."""
    swap = f"{directory}/{_SWAP}"
    for name in parse_checkpoint(files.read(f"{swap}/{_MANIFEST}")):
        if files.exists(f"{directory}/{name}"):
            files.remove(f"{directory}/{name}")
    for name in files.listdir(swap):
        if name != _MANIFEST:
            files.rename(f"{swap}/{name}", f"{directory}/{name}")
