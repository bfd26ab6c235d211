"""Decides which objects of an archive may be deleted: those that no document has named for a grace period.

The collector works in two steps, at least a grace period apart. The first lists all objects, reads all
documents, and writes the objects that none of them names to a list of candidates. A later run lists and reads
again: it deletes the candidates of an old enough list that are still there unchanged, and still not named.

Why two listings: a writer puts a segment before the manifest that names it. An object is deleted only if it
was there for a whole grace period without a name, whatever the clocks of the writer and of the collector say:
all times are those of the store. Writers that need longer than the grace period put their segments again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from penstock.archive.documents import Document
from penstock.archive.names import COLLECTIONS, CUTS, ROOT, manifest_number, parse_partition
from penstock.ports import StoredObject

__all__ = ["GRACE_MS", "Candidate", "Candidates", "candidates", "collectable", "deletable"]

#: how long an object has no name before it is deleted
GRACE_MS: Final = 24 * 3600 * 1000


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """An object that no document named."""

    name: str
    size: int
    modified_ms: int


class Candidates(Document, frozen=True, kw_only=True):
    """The result of a first listing. The store's time of this object is the time of the listing."""

    KIND = "candidates"

    kind: str = "candidates"
    objects: tuple[Candidate, ...]


def collectable(name: str) -> bool:
    """Returns true for objects that the collector may delete: segments, pages and manifests of partitions."""
    if name == ROOT or name.startswith((CUTS, COLLECTIONS)):
        return False
    found = parse_partition(name)
    if found is None:
        return False  # not ours: an operator's, or one of a later version
    rest = found[1]
    return rest.endswith((".segment", ".page")) or manifest_number(rest) is not None


def candidates(listing: Iterable[StoredObject], named: Collection[str]) -> Candidates:
    """The objects of a listing that no document names."""
    found = [
        Candidate(name=each.name, size=each.size, modified_ms=each.modified_ms)
        for each in listing
        if each.name not in named and collectable(each.name)
    ]
    return Candidates(objects=tuple(found))


def deletable(
    earlier: Candidates,
    earlier_ms: int,
    listing: Iterable[StoredObject],
    named: Collection[str],
    now_ms: int,
    grace_ms: int = GRACE_MS,
) -> list[str]:
    """The objects to delete now. `earlier_ms` and `now_ms` are times of the store.

    `named` was read after `listing`, so that no object gets its name in between.
    """
    if now_ms - earlier_ms < grace_ms:
        return []
    there = {each.name: each for each in listing}
    found = []
    for candidate in earlier.objects:
        now = there.get(candidate.name)
        if (
            now is not None
            and (now.size, now.modified_ms) == (candidate.size, candidate.modified_ms)
            and candidate.name not in named
            and collectable(candidate.name)
            and now_ms - now.modified_ms >= grace_ms
        ):
            found.append(candidate.name)
    return found
