"""Verifies everything that manifests name: every byte of every object, and that offsets have no holes."""

from __future__ import annotations

from typing import NamedTuple

from penstock.archive.building import LogState
from penstock.archive.chain import newest_manifest
from penstock.archive.checking import check_segment
from penstock.archive.cuts import Cut
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged, ArchiveError
from penstock.archive.manifests import check_manifest
from penstock.archive.names import TIER, TOPICS, ArchivedPartition, parse_partition
from penstock.archive.objects import get_unverified
from penstock.archive.reading import PartitionReader
from penstock.archive.sweeping import cut_manifest
from penstock.ports import ObjectStore

__all__ = [
    "PartitionVerification",
    "VerifiedPartition",
    "verify_cut",
    "verify_partition",
    "verify_tiered",
]


class VerifiedPartition(NamedTuple):
    """What was read of a partition."""

    segments: int
    object_bytes: int
    log_bytes: int


class PartitionVerification(NamedTuple):
    """The verification of one partition."""

    topic: str
    partition: int
    #: None if some of its records are damaged or missing
    verified: VerifiedPartition | None
    problem: str = ""


async def verify_cut(store: ObjectStore, cut: Cut) -> list[PartitionVerification]:
    """Read and verify every object of a cut.

    A store that does not answer is not taken for a damaged archive: its OSError ends the verification.
    """
    found = []
    for topic in cut.topics:
        for each in topic.partitions:
            try:
                verified = await verify_partition(store, await cut_manifest(store, topic, each))
            except (ArchiveError, FileNotFoundError) as e:
                found.append(PartitionVerification(topic.topic, each.partition, None, str(e)))
            else:
                found.append(PartitionVerification(topic.topic, each.partition, verified))
    return found


async def verify_tiered(store: ObjectStore) -> list[PartitionVerification]:
    """Read and verify what tiered storage has: every object that the newest manifests of leaders name.

    A manifest that is replaced meanwhile is no damage: the partition is verified again by its successor.
    """
    owners = {parsed[0] for each in await store.listing(TOPICS) if (parsed := parse_partition(each.name))}
    found = []
    for owner in sorted(owners):
        try:
            verified = await _verify_newest(store, owner)
        except (ArchiveError, FileNotFoundError) as e:
            found.append(PartitionVerification(owner.topic, owner.partition, None, str(e)))
        else:
            if verified is not None:
                found.append(PartitionVerification(owner.topic, owner.partition, verified))
    return found


async def _verify_newest(store: ObjectStore, owner: ArchivedPartition) -> VerifiedPartition | None:
    """None if no leader has written a manifest of the partition."""
    newest = await newest_manifest(store, owner, TIER)
    while newest is not None:
        try:
            return await verify_partition(store, newest[0])
        except ArchiveError:
            # Retention may have taken its objects meanwhile.
            before, newest = newest, await newest_manifest(store, owner, TIER)
            if newest == before:
                raise
    return None


async def verify_partition(store: ObjectStore, manifest: Manifest) -> VerifiedPartition:
    """Read and verify all segments of a manifest; ArchiveDamaged names the first object that is damaged."""
    check_manifest(manifest, f"the manifest of {manifest.owner}")
    reader = PartitionReader(store, manifest)
    segments = object_bytes = log_bytes = 0
    state: LogState | None = None
    expected = manifest.base_offset
    async for entry in reader.segments():
        if entry.base_offset != expected:
            raise ArchiveDamaged(f"{manifest.owner} has no segment for offset {expected}")
        if entry.missing and not manifest.compacted:
            raise ArchiveDamaged(
                f"{entry.name} of {manifest.owner} lacks {entry.missing} offsets, "
                f"and its topic is not compacted"
            )
        name = manifest.owner.object(entry.name)
        data = await get_unverified(store, name)
        state = check_segment(data, entry, manifest.owner, state).state
        segments, object_bytes = segments + 1, object_bytes + entry.size
        log_bytes, expected = log_bytes + entry.log_size, entry.next_offset
    return VerifiedPartition(segments, object_bytes, log_bytes)
