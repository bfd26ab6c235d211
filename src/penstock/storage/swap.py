"""Putting compacted segments in the place of the old ones so that a crash leaves either, never neither.

Compaction writes into the directory `cleaned` of a log, last of all a manifest of what its result replaces.
The swap is decided by one rename, `cleaned` to `swap`: before it the old segments stand, behind it the new
ones do, whatever happens. The rest only moves files and can be repeated; opening a log does that:

    write_manifest   in compaction's process, when every file of the result is synced
    commit           in a worker thread: syncs
    move_into_place  on the event loop, together with the change in memory: no syncs
    finish           in a worker thread: syncs, and forgets the swap
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from penstock.ports import File, Files
from penstock.storage.checkpoint import format_checkpoint, parse_checkpoint
from penstock.storage.segment import LOG, SNAPSHOT, SUFFIXES, file_name

__all__ = [
    "CLEANED",
    "abandon",
    "commit",
    "finish",
    "finish_interrupted_swaps",
    "move_into_place",
    "write_manifest",
]

CLEANED: Final = "cleaned"
_SWAP: Final = "swap"
_MANIFEST: Final = "replaced"


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


def commit(files: Files, directory: str, replaced: Iterable[int]) -> list[File]:
    """Decide for the new segments; from now on opening the log would put them in place.

    Returns the old ones, open: closing the last descriptor of a removed file frees its blocks, which may take
    a while; so that is to be the one that `finish` closes.
    """
    old = [files.open(f"{directory}/{file_name(base)}{LOG}") for base in replaced]
    files.rename(f"{directory}/{CLEANED}", f"{directory}/{_SWAP}")
    files.sync_dir(directory)
    return old


def move_into_place(files: Files, directory: str) -> None:
    """Move what was committed over the old files and remove the others; may be repeated from any state."""
    swap = f"{directory}/{_SWAP}"
    for name in parse_checkpoint(files.read(f"{swap}/{_MANIFEST}")):
        if files.exists(f"{directory}/{name}"):
            files.remove(f"{directory}/{name}")
    for name in files.listdir(swap):
        if name != _MANIFEST:
            files.rename(f"{swap}/{name}", f"{directory}/{name}")


def finish(files: Files, directory: str, old: Iterable[File] = ()) -> None:
    """Forget the swap, once what it moved is durable, and let go of `old`."""
    files.sync_dir(directory)
    files.rmtree(f"{directory}/{_SWAP}")
    files.sync_dir(directory)
    for file in old:
        file.close()


def abandon(files: Files, directory: str) -> None:
    """Drop a result that is not wanted any more, committed or not, of which nothing has been moved."""
    for name in (CLEANED, _SWAP):
        if files.is_dir(f"{directory}/{name}"):
            files.rmtree(f"{directory}/{name}")


def finish_interrupted_swaps(files: Files, directory: str) -> None:
    """Bring the directory of a log, before it is opened, to where it was before a swap or to behind it."""
    if files.is_dir(f"{directory}/{CLEANED}"):
        files.rmtree(f"{directory}/{CLEANED}")
    if files.is_dir(f"{directory}/{_SWAP}"):
        # Without its manifest the swap was over: nothing but the forgetting was interrupted.
        if files.exists(f"{directory}/{_SWAP}/{_MANIFEST}"):
            move_into_place(files, directory)
        finish(files, directory)
