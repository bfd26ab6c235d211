"""Replaces segments by compacted ones, so that a crash leaves either the old or the new segments.

Compaction writes into the directory `cleaned` of a log, last of all a manifest of the segments to replace.
One rename, `cleaned` to `swap`, commits the swap: after a crash before it the old segments are valid, after a
crash behind it the new ones. The rest only moves files and can be repeated; opening a log does that.

Invariants: the manifest is checked before the first file is removed; a directory `swap` is complete until its
files are moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from penstock.model.errors import StorageError
from penstock.ports import File, Files
from penstock.storage.checkpoint import format_checked, parse_checkpoint
from penstock.storage.health import Health
from penstock.storage.segment_files import LOG, SNAPSHOT, SUFFIXES, file_name

__all__ = ["CLEANED", "SWAP_DIRECTORIES", "Swap", "finish_interrupted_swaps", "write_manifest"]

CLEANED: Final = "cleaned"
_SWAP: Final = "swap"
#: the directories that an interrupted swap leaves in the directory of a log
SWAP_DIRECTORIES: Final = frozenset({CLEANED, _SWAP})
_MANIFEST: Final = "replaced"
_OBSOLETE: Final = re.compile(r"[0-9]{20}\.[a-z]+")


class Swap:
    """One swap of a log: `commit` in a worker thread, `move` on the event loop, `finish` in a thread.

    `abandon`, in a thread, drops a result that is not wanted any more, at any time before `move`.
    """

    __slots__ = ("_directory", "_files", "_health", "_new", "_obsolete", "_old", "_replaced")

    def __init__(self, files: Files, directory: str, health: Health, replaced: Iterable[int]) -> None:
        self._files = files
        self._directory = directory
        self._health = health
        self._replaced = tuple(replaced)
        #: Closing the last descriptor of a removed file frees its blocks, which may take a while; holding the
        #: old segments open until then leaves that to `finish`.
        self._old: list[File] = []
        #: the files to remove and to move, known before the first change: `move` needs no descriptor
        self._obsolete: list[str] = []
        self._new: list[str] = []

    def commit(self) -> None:
        """Decide for the new segments; from now on opening the log would put them in place.

        After an error, the old segments are valid, or the data directory is offline.
        """
        files, directory = self._files, self._directory
        cleaned = f"{directory}/{CLEANED}"
        self._finish_earlier()
        try:
            self._old = [files.open(f"{directory}/{file_name(base)}{LOG}") for base in self._replaced]
            self._obsolete, self._new = _contents(files, cleaned)
            files.rename(cleaned, f"{directory}/{_SWAP}")
        except OSError as e:
            raise self._health.failed(e, f"cannot swap segments of {directory}") from e
        try:
            self._sync_directory()
        except StorageError:
            if self._health.offline is None:
                self._withdraw()
            raise

    def move(self) -> None:
        """Put the new segments in place; the log must use them from now on."""
        try:
            _move_into_place(self._files, self._directory, self._obsolete, self._new)
        except OSError as e:
            # Some files are moved and some are not: only opening the log again can sort that out.
            raise self._health.left_half_done(e, f"cannot swap segments of {self._directory}") from e

    def finish(self) -> None:
        """Remove the swap's directory, once the moved files are durable, and release the old segments.

        Can be repeated after an error that leaves the data directory online.
        """
        self._health.check()
        # First: the sync needs a descriptor.
        for file in self._old:
            file.close()
        self._old = []
        self._sync_directory()
        self._remove(_SWAP)

    def finish_or_leave(self) -> None:
        """As `finish`. After an error that leaves the data directory online, the next swap does the rest."""
        try:
            self.finish()
        except StorageError:
            if self._health.offline is not None:
                raise

    def _finish_earlier(self) -> None:
        """Finish an earlier swap of this log that lacked descriptors: only its manifest is left."""
        path = f"{self._directory}/{_SWAP}"
        try:
            is_moved = self._files.is_dir(path) and set(self._files.listdir(path)) <= {_MANIFEST}
        except OSError as e:
            raise self._health.failed(e, f"cannot read {path}") from e
        if is_moved:
            self._sync_directory()
            self._remove(_SWAP)

    def abandon(self) -> None:
        if self._files.is_dir(f"{self._directory}/{_SWAP}"):
            self._remove(CLEANED)
            # Opening the log would put a swap in place that has lost some of its files already.
            self._withdraw()
            self._sync_directory()
        self._remove(CLEANED)

    def _withdraw(self) -> None:
        """Undo the decision of `commit`. Needs no descriptor."""
        try:
            self._files.rename(f"{self._directory}/{_SWAP}", f"{self._directory}/{CLEANED}")
        except OSError as e:
            raise self._health.left_half_done(e, f"cannot abandon a swap of {self._directory}") from e

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
            raise self._health.sync_failed(e, f"cannot sync {self._directory}") from e


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
    files.write_atomic(f"{cleaned}/{_MANIFEST}", format_checked(obsolete))


def finish_interrupted_swaps(files: Files, directory: str) -> None:
    """Bring the directory of a log, before it is opened, to where it was before a swap or to behind it.

    StorageError, without a change of the swap, if its manifest is damaged.
    """
    if files.is_dir(f"{directory}/{CLEANED}"):
        files.rmtree(f"{directory}/{CLEANED}")
    if files.is_dir(f"{directory}/{_SWAP}"):
        # Without its manifest the swap was over: nothing but the forgetting was interrupted.
        if files.exists(f"{directory}/{_SWAP}/{_MANIFEST}"):
            _move_into_place(files, directory, *_contents(files, f"{directory}/{_SWAP}"))
            files.sync_dir(directory)
        files.rmtree(f"{directory}/{_SWAP}")


def _contents(files: Files, path: str) -> tuple[list[str], list[str]]:
    """The files to remove and the files to move of the swap in the directory `path`.

    StorageError if the manifest is damaged. Release 0.1.0 wrote it without a checksum.
    """
    manifest = f"{path}/{_MANIFEST}"
    try:
        obsolete = parse_checkpoint(files.read(manifest))
        if not all(_OBSOLETE.fullmatch(name) for name in obsolete):
            raise ValueError("it names files that are no segment's")
    except ValueError as e:
        raise StorageError(
            f"{manifest}, which lists the segments that new ones replace, is damaged ({e}): move the "
            f"partition's folder away, so that the replica is fetched again"
        ) from e
    return obsolete, [name for name in files.listdir(path) if name != _MANIFEST]


def _move_into_place(files: Files, directory: str, obsolete: Iterable[str], new: Iterable[str]) -> None:
    """Move the committed files over the old ones and remove the remaining old files; repeatable."""
    for name in obsolete:
        if files.exists(f"{directory}/{name}"):
            files.remove(f"{directory}/{name}")
    for name in new:
        files.rename(f"{directory}/{_SWAP}/{name}", f"{directory}/{name}")
