"""What leaders have copied of partitions: as far as it can be read without the brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from penstock.archive.chain import newest_manifest
from penstock.archive.documents import Manifest
from penstock.archive.names import TIER, ArchivedPartition
from penstock.archive.objects import read_root
from penstock.ports import ObjectStore
from penstock.remote.source import ArchiveSource, read_tail
from penstock.scan.partition import InlineWorkers
from penstock.scan.parts import Part
from penstock.scan.place import ArchivePlace, open_place

__all__ = ["Copied", "copied"]

#: partitions that are looked at together
_AT_ONCE: Final = 16


class Copied(NamedTuple):
    """The newest manifest of a partition."""

    place: ArchivePlace
    manifest: str
    sha256: str
    first: int
    #: behind the last copied record, whose leader epoch this is
    stop: int
    leader_epoch: int
    #: Transactions with records at or behind it may have their markers behind `stop` only.
    decided_stop: int

    def part(self, first: int, stop: int) -> Part:
        return Part(self.place, self.manifest, self.sha256, first, stop)


async def copied(place: ArchivePlace, owners: Iterable[ArchivedPartition]) -> dict[ArchivedPartition, Copied]:
    """What was copied of these partitions; those of which nothing was are left out.

    ArchiveRefused if there is no archive.
    """
    store = open_place(place)
    await read_root(store)
    found: dict[ArchivedPartition, Copied] = {}
    wanted = list(owners)
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        for owner, each in zip(
            some, await asyncio.gather(*(_copied(store, place, owner) for owner in some)), strict=True
        ):
            if each is not None:
                found[owner] = each
    return found


async def _copied(store: ObjectStore, place: ArchivePlace, owner: ArchivedPartition) -> Copied | None:
    newest = await newest_manifest(store, owner, TIER)
    if newest is None or not newest[0].segments:
        return None
    manifest, sha256 = newest
    return Copied(
        place,
        owner.manifest(TIER, manifest.number),
        sha256,
        manifest.log_start_offset,
        manifest.next_offset,
        manifest.segments[-1].leader_epoch,
        await _decided_stop(store, manifest),
    )


async def _decided_stop(store: ObjectStore, manifest: Manifest) -> int:
    """The first offset of the transactions that are open at the end of a manifest, or that end."""

    async def known() -> Manifest:
        return manifest

    last = manifest.segments[-1]
    tail = await read_tail(store, last, manifest.owner)
    transactions = await ArchiveSource(store, known, InlineWorkers()).transactions(manifest, last, tail)
    return min((each.first_offset for each in transactions.still_open), default=manifest.next_offset)
