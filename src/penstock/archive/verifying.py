"""Verifies everything that a manifest names: every byte of every object, and that offsets have no holes."""

from __future__ import annotations

from typing import NamedTuple

from penstock.archive.building import LogState
from penstock.archive.checking import check_segment
from penstock.archive.cuts import Cut
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged, ArchiveError
from penstock.archive.manifests import check_manifest
from penstock.archive.objects import get_unverified
from penstock.archive.reading import PartitionReader
from penstock.archive.sweeping import cut_manifest
from penstock.ports import ObjectStore

__all__ = ["CutVerification", "VerifiedPartition", "verify_cut", "verify_partition"]


class VerifiedPartition(NamedTuple):
    """What was read of a partition."""

    segments: int
    object_bytes: int
    log_bytes: int


class CutVerification(NamedTuple):
    """The verification of one partition of a cut."""

    topic: str
    partition: int
    #: None if the partition cannot be restored
    verified: VerifiedPartition | None
    problem: str = ""


async def verify_cut(store: ObjectStore, cut: Cut) -> list[CutVerification]:
    """Read and verify every object of a cut.

    A store that does not answer is not taken for a damaged archive: its OSError ends the verification.
    """
    found = []
    for topic in cut.topics:
        for each in topic.partitions:
            try:
                verified = await verify_partition(store, await cut_manifest(store, topic, each))
            except (ArchiveError, FileNotFoundError) as e:
                found.append(CutVerification(topic.topic, each.partition, None, str(e)))
            else:
                found.append(CutVerification(topic.topic, each.partition, verified))
    return found


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
