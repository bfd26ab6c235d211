"""Edits of manifests, and the checks that a manifest is consistent.

Invariant: segments follow each other without a hole: each starts where the one before it ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from penstock.archive.documents import Manifest, Page, PageEntry, SegmentEntry, digest, encode
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.names import PAGE, object_name

__all__ = [
    "PAGE_SEGMENTS",
    "Spilled",
    "appended",
    "check_follows",
    "check_manifest",
    "check_page",
    "replaced_tail",
    "spill",
    "trailing_run",
    "trimmed",
]

#: segments of a page, and how many a manifest has itself before the oldest move to a page
PAGE_SEGMENTS: Final = 256
_INLINE_MAX: Final = 288


def appended(manifest: Manifest, entries: Sequence[SegmentEntry]) -> Manifest:
    """The manifest with more segments at its end."""
    return msgspec.structs.replace(manifest, segments=(*manifest.segments, *entries))


def replaced_tail(manifest: Manifest, count: int, entry: SegmentEntry) -> Manifest:
    """The manifest with one segment instead of its last `count`, which have the same batches."""
    tail = manifest.segments[-count:]
    assert len(tail) == count
    assert (tail[0].base_offset, tail[-1].next_offset) == (entry.base_offset, entry.next_offset)
    return msgspec.structs.replace(manifest, segments=(*manifest.segments[:-count], entry))


def trimmed(manifest: Manifest, log_start_offset: int) -> Manifest:
    """The manifest without the segments and pages that end at or below the log start.

    A page of which some segments end there stays as it is.
    """
    log_start_offset = max(log_start_offset, manifest.log_start_offset)
    pages = tuple(page for page in manifest.pages if page.next_offset > log_start_offset)
    segments = tuple(entry for entry in manifest.segments if entry.next_offset > log_start_offset)
    return msgspec.structs.replace(
        manifest, log_start_offset=log_start_offset, pages=pages, segments=segments
    )


class Spilled(NamedTuple):
    """A manifest whose oldest segments have moved to a page, and that page: name and bytes."""

    manifest: Manifest
    name: str
    data: bytes


def spill(manifest: Manifest, random: bytes) -> Spilled | None:
    """Move the oldest segments of a long manifest to a page; None if it is short."""
    if len(manifest.segments) < _INLINE_MAX:
        return None
    moved = manifest.segments[:PAGE_SEGMENTS]
    page = Page(
        topic=manifest.topic, topic_id=manifest.topic_id, partition=manifest.partition, segments=moved
    )
    data = encode(page)
    entry = PageEntry(
        name=object_name(moved[0].base_offset, manifest.leader_epoch, random, PAGE),
        size=len(data),
        sha256=digest(data),
        base_offset=moved[0].base_offset,
        next_offset=moved[-1].next_offset,
        max_timestamp=max(segment.max_timestamp for segment in moved),
        segments=len(moved),
        log_size=sum(segment.log_size for segment in moved),
    )
    shorter = msgspec.structs.replace(
        manifest, pages=(*manifest.pages, entry), segments=manifest.segments[PAGE_SEGMENTS:]
    )
    return Spilled(shorter, entry.name, data)


def trailing_run(sizes: Sequence[int], size_max: int) -> int:
    """How many segments at the end of a manifest to merge into one; 0 for none.

    A segment is merged with the ones before it as long as they are at most twice as large as what follows
    them. So each byte is copied a logarithmic number of times, and the number of small segments is
    logarithmic, too.
    """
    count, total = 0, 0
    for size in reversed(sizes):
        if count and (size > 2 * total or size + total > size_max):
            break
        count, total = count + 1, total + size
    return count if count > 1 else 0


def check_manifest(manifest: Manifest, name: str) -> None:
    """ArchiveDamaged unless pages and segments follow each other without a hole."""
    expected = None
    places: list[PageEntry | SegmentEntry] = [*manifest.pages, *manifest.segments]
    for each in places:
        if expected not in (None, each.base_offset) or each.next_offset <= each.base_offset:
            raise ArchiveDamaged(
                f"{name} has a hole: {each.name} has the offsets {each.base_offset} to "
                f"{each.next_offset - 1} where {expected} is the next one"
            )
        expected = each.next_offset
    if (manifest.pages or manifest.segments) and not (
        manifest.base_offset <= manifest.log_start_offset <= manifest.next_offset
    ):
        raise ArchiveDamaged(f"{name} has the log start {manifest.log_start_offset} outside of its segments")


def check_page(page: Page, entry: PageEntry, manifest: Manifest) -> None:
    """ArchiveDamaged unless a page is the one that a manifest names."""
    segments = page.segments
    expected = entry.base_offset
    for segment in segments:
        if segment.base_offset != expected or segment.next_offset <= expected:
            raise ArchiveDamaged(f"{entry.name} has a hole at offset {expected}")
        expected = segment.next_offset
    owner = (page.topic, page.topic_id, page.partition)
    if (
        expected != entry.next_offset
        or len(segments) != entry.segments
        or owner != (manifest.topic, manifest.topic_id, manifest.partition)
    ):
        raise ArchiveDamaged(f"{entry.name} is another page than its manifest names")


def check_follows(manifest: Manifest, previous: Manifest, previous_digest: str, name: str) -> None:
    """ArchiveDamaged unless a manifest continues the chain of `previous`."""
    if (manifest.number, manifest.previous) != (previous.number + 1, previous_digest):
        raise ArchiveDamaged(f"{name} does not follow manifest {previous.number}")
    if manifest.leader_epoch < previous.leader_epoch:
        raise ArchiveDamaged(f"{name} has leader epoch {manifest.leader_epoch} after {previous.leader_epoch}")
