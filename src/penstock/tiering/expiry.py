"""Decides which records of an archive are too old or too many, by the retention of the whole log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.archive.documents import Manifest, PageEntry, SegmentEntry
from penstock.timekeeping.rounds import Survey

__all__ = ["Budget", "Expiry", "archived_survey", "budget_of", "expired_until"]


class Expiry(NamedTuple):
    """The retention of a log; -1 for no limit."""

    retention_ms: int
    retention_bytes: int
    #: None while the wall clock is not trusted, or must not delete what was overdue when it was first watched
    now_ms: int | None


class Budget(NamedTuple):
    """Where the search stands."""

    #: the new log start so far
    start: int
    #: bytes that are too many
    excess: int


def budget_of(
    manifest: Manifest, log_start: int, local_start: int, local_size: int, expiry: Expiry
) -> Budget:
    """Before the first place: bytes count once, those that are also local as local."""
    if expiry.retention_bytes < 0:
        return Budget(log_start, 0)
    archived = sum(
        each.log_size
        for each in _places(manifest)
        if each.next_offset > log_start and each.base_offset < local_start
    )
    return Budget(log_start, archived + local_size - expiry.retention_bytes)


def expired_until(
    places: Sequence[PageEntry | SegmentEntry], budget: Budget, local_start: int, expiry: Expiry
) -> tuple[Budget, PageEntry | None]:
    """Go along `places`, oldest first; a page that is not expired as a whole has to be looked into."""
    start, excess = budget
    for each in places:
        if each.next_offset <= start:
            continue
        if each.base_offset >= local_start:
            break
        too_much = excess > 0 and each.log_size <= excess
        if not (too_much or _too_old(each, expiry)):
            return Budget(start, excess), each if isinstance(each, PageEntry) else None
        start, excess = min(each.next_offset, local_start), excess - each.log_size
    return Budget(start, excess), None


def archived_survey(
    manifest: Manifest, log_start: int, local_start: int, expiry: Expiry, since_ms: int
) -> Survey:
    """The bytes that only the archive has, and those of them that were too old at `since_ms`."""
    if expiry.retention_ms < 0:
        return Survey()
    total = overdue = 0
    for each in _places(manifest):
        if each.next_offset > log_start and each.base_offset < local_start:
            total += each.log_size
            overdue += each.log_size * (0 <= each.max_timestamp < since_ms - expiry.retention_ms)
    return Survey(total, overdue)


def _too_old(place: PageEntry | SegmentEntry, expiry: Expiry) -> bool:
    if expiry.now_ms is None or expiry.retention_ms < 0 or place.max_timestamp < 0:
        return False
    return expiry.now_ms - place.max_timestamp > expiry.retention_ms


def _places(manifest: Manifest) -> list[PageEntry | SegmentEntry]:
    return [*manifest.pages, *manifest.segments]
