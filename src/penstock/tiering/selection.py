"""Decides what of a log is to be copied, and whether the log continues its archive."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from penstock.archive.documents import Manifest
from penstock.tiering.errors import LogDiverged, LogIncomplete

__all__ = ["LocalSegment", "LocalView", "check_continues", "pending_segments"]


class LocalSegment(NamedTuple):
    """A sealed segment of a log."""

    base_offset: int
    next_offset: int
    size: int


class LocalView(NamedTuple):
    """A leader's log at one moment."""

    log_start_offset: int
    #: what lies below it is only in the archive
    local_log_start_offset: int
    end_offset: int
    #: Segments that end at or below it may be copied: stable, and on this broker's disk. -1 if none may.
    copyable_end: int
    #: sealed segments without a gap, oldest first; those below what was asked for may be left out
    segments: tuple[LocalSegment, ...]
    #: the leader epoch of an offset; None if the log does not know it
    epoch_of: Callable[[int], int | None]


def check_continues(view: LocalView, manifest: Manifest) -> None:
    """LogDiverged unless the log has the last record of the archive, as far as leader epochs tell.

    Why: records below the last stable offset are lost only by an unclean election, or with the disks of all
    in-sync replicas. The archive may then have the only copy.
    """
    if not manifest.segments:
        return
    last = manifest.segments[-1]
    if last.next_offset > view.end_offset:
        raise LogDiverged(
            f"the archive of {manifest.owner} ends at offset {last.next_offset}, the log at {view.end_offset}"
        )
    epoch = view.epoch_of(last.next_offset - 1)
    if epoch is not None and epoch != last.leader_epoch:
        raise LogDiverged(
            f"the archive of {manifest.owner} has leader epoch {last.leader_epoch} at offset "
            f"{last.next_offset - 1}, the log has {epoch}"
        )


def check_not_released(view: LocalView, manifest: Manifest) -> None:
    """LogDiverged if the archive has given up records of a log that only it had.

    Why: the log start of a leader moves before its manifest is shortened. A clone of the cluster at the same
    address may have deleted its topic, and the objects are still there.
    """
    needed_until = min(view.local_log_start_offset, manifest.log_start_offset)
    if manifest.number >= 0 and not manifest.segments and view.log_start_offset < needed_until:
        raise LogDiverged(
            f"the archive of {manifest.owner} has released all of its segments, and the log starts at "
            f"{view.log_start_offset}"
        )


def pending_segments(view: LocalView, offset: int) -> list[LocalSegment]:
    """The segments to copy next, if the archive ends at `offset`; the first one may begin below it."""
    found = []
    for segment in view.segments:
        if segment.next_offset > view.copyable_end:
            break
        if segment.next_offset > offset:
            found.append(segment)
    if found and found[0].base_offset > offset:
        if view.log_start_offset > offset:
            return []  # retention was faster: the next turn begins at the new log start
        raise LogIncomplete(f"the log has no segment with the offsets {offset} to {found[0].base_offset - 1}")
    return found
