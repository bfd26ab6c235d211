"""Reads the cuts of an archive, removes old ones, and collects objects that no document names.

Whatever cannot be read stops a collection before anything is deleted: an unreadable document may name any
object.

A segment behind the end of the newest manifest stays, although no document names it. Why: a store
that was rolled back, or has lost manifests, has such segments: they may be the only copy of their records.
Those of a copy that failed go later, when a manifest has come past them. For the same reason a page stays as
long as the archive may have one of its records.

Two clocks decide together how old something is, that of the store and that of the caller: one of them may be
wrong, or may have been set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from penstock.archive.chain import newest_manifest
from penstock.archive.collection import GRACE_MS, Candidates, candidates, deletable
from penstock.archive.cuts import Cut, CutPartition, CutTopic, newest_at
from penstock.archive.documents import Manifest, encode
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.manifests import check_manifest
from penstock.archive.names import (
    BACKUP,
    COLLECTIONS,
    CUTS,
    PAGE,
    TIER,
    TOPICS,
    WRITERS,
    ArchivedPartition,
    base_offset_of,
    candidates_name,
    candidates_time_ms,
    cut_time_ms,
    parse_partition,
)
from penstock.archive.objects import PROBES, put_certain, read_document
from penstock.archive.reading import PartitionReader
from penstock.model.ids import parse_topic_id
from penstock.ports import ObjectStore, Rng

__all__ = [
    "Collected",
    "Named",
    "collect",
    "cut_manifest",
    "earlier_now",
    "find_cut",
    "list_cuts",
    "named_objects",
    "prune_cuts",
]


async def list_cuts(store: ObjectStore) -> dict[str, int]:
    """Names and times of all cuts, oldest first."""
    names = [each.name for each in await store.listing(CUTS)]
    return {name: time for name in names if (time := cut_time_ms(name)) is not None}


async def find_cut(store: ObjectStore, moment_ms: int | None) -> tuple[str, Cut]:
    """The newest cut at or before a moment; ArchiveRefused if there is none."""
    name = newest_at(await list_cuts(store), moment_ms)
    if name is None:
        raise ArchiveRefused(
            "the archive has no cut at or before this time: `penstock backup list` lists them"
        )
    return name, (await read_document(store, name, Cut))[0]


async def cut_manifest(store: ObjectStore, topic: CutTopic, partition: CutPartition) -> Manifest:
    """The manifest that a cut names; ArchiveDamaged if it is missing, or another one."""
    owner = ArchivedPartition(topic.topic, parse_topic_id(topic.topic_id), partition.partition)
    name = owner.manifest(BACKUP, partition.manifest)
    try:
        manifest, sha256 = await read_document(store, name, Manifest)
    except FileNotFoundError as e:
        raise ArchiveDamaged(f"{name} is missing") from e
    if sha256 != partition.sha256 or manifest.owner != owner:
        raise ArchiveDamaged(f"{name} is another manifest than its cut names")
    check_manifest(manifest, name)
    if manifest.next_offset != partition.end_offset:
        raise ArchiveDamaged(f"{name} ends at {manifest.next_offset}, its cut at {partition.end_offset}")
    return manifest


async def earlier_now(store: ObjectStore, rng: Rng, now_ms: int) -> int:
    """The earlier of `now_ms` and the time of the store; 0 if the store has not told."""
    name = f"{PROBES}{rng.token(8).hex()}"
    await put_certain(store, name, b"time")
    listed = [each.modified_ms for each in await store.listing(PROBES) if each.name == name]
    await store.delete(name)
    return min(now_ms, *listed) if listed else 0


async def prune_cuts(store: ObjectStore, before_ms: int) -> list[str]:
    """Delete the cuts before a moment, but never the newest one; returns their names.

    A cut is as old as the clock of its backup and that of the store both say.
    """
    cuts = await list_cuts(store)
    newest = newest_at(cuts, None)
    written_ms = {each.name: each.modified_ms for each in await store.listing(CUTS)}
    old = [
        name
        for name, time in cuts.items()
        if max(time, written_ms.get(name, before_ms)) < before_ms and name != newest
    ]
    for name in old:
        await store.delete(name)
    return old


class Named(NamedTuple):
    """What the documents of an archive say about its objects."""

    #: all objects that a cut, or the newest manifest of a writer, names; themselves included
    objects: set[str]
    #: where the newest manifest of a partition ends: that of `tier`, which a tiered topic has
    ends: Mapping[ArchivedPartition, int]
    #: where its newest manifests begin
    starts: Mapping[ArchivedPartition, int]

    def keeps(self, name: str) -> bool:
        """Returns true if an object has a name, or may be missing in a manifest that was lost."""
        if name in self.objects:
            return True
        parsed = parse_partition(name)
        if parsed is None:
            return False
        owner, rest = parsed
        segment, page = base_offset_of(rest), base_offset_of(rest, PAGE)
        if segment is not None:
            return segment >= self.ends.get(owner, 0)
        return page is not None and page >= self.starts.get(owner, 0)


async def named_objects(store: ObjectStore) -> Named:
    """What all cuts, and the newest manifests of all writers, name."""
    found: set[str] = set()
    ends: dict[ArchivedPartition, int] = {}
    starts: dict[ArchivedPartition, int] = {}
    seen: set[str] = set()
    for name in await list_cuts(store):
        cut, _ = await read_document(store, name, Cut)
        for topic in cut.topics:
            for partition in topic.partitions:
                if partition.sha256 not in seen:
                    seen.add(partition.sha256)
                    await _add(store, await cut_manifest(store, topic, partition), found)
    owners = {parsed[0] for each in await store.listing(TOPICS) if (parsed := parse_partition(each.name))}
    for owner in sorted(owners):
        newest: dict[str, Manifest] = {}
        for writer in sorted(WRITERS):
            if (read := await newest_manifest(store, owner, writer)) is not None:
                newest[writer] = read[0]
                if read[1] not in seen:
                    await _add(store, read[0], found)
        deciding = newest.get(TIER) or newest.get(BACKUP)
        # Without a manifest of `tier`, what leaders of a tiered topic have written was lost: all stays.
        if deciding is not None and (deciding.writer == TIER or not deciding.tiered):
            ends[owner] = deciding.next_offset
            starts[owner] = min(each.base_offset for each in newest.values())
    return Named(found, ends, starts)


async def _add(store: ObjectStore, manifest: Manifest, found: set[str]) -> None:
    owner = manifest.owner
    found.add(owner.manifest(manifest.writer, manifest.number))
    found.update(owner.object(page.name) for page in manifest.pages)
    async for entry in PartitionReader(store, manifest).segments():
        found.add(owner.object(entry.name))


class Collected(NamedTuple):
    """The result of a collection: deleted objects, and objects that wait for their grace period."""

    deleted: int
    waiting: int


async def collect(store: ObjectStore, rng: Rng, now_ms: int, grace_ms: int = GRACE_MS) -> Collected:
    """Delete what no document has named for a grace period, and note what none names now.

    A grace period has passed if both `now_ms`, the caller's time, and the time of the store say so.
    """
    listing = await store.listing(TOPICS)
    known = await named_objects(store)
    named = {each.name for each in listing if known.keeps(each.name)} | known.objects
    noted = candidates(listing, named)
    own = candidates_name(now_ms, rng.token(8))
    await put_certain(store, own, encode(noted))
    lists = {each.name: each.modified_ms for each in await store.listing(COLLECTIONS)}
    store_now_ms = lists.pop(own, None)
    deleted: set[str] = set()
    for name, written_ms in lists.items() if store_now_ms is not None else ():
        assert store_now_ms is not None
        earlier, _ = await read_document(store, name, Candidates)
        noted_ms = candidates_time_ms(name)
        if noted_ms is None or noted_ms > now_ms:
            # The clock of a collector was wrong: its objects are noted again.
            await store.delete(name)
            continue
        if min(store_now_ms - written_ms, now_ms - noted_ms) < grace_ms:
            continue
        for each in deletable(earlier, written_ms, listing, named, store_now_ms, grace_ms):
            if each not in deleted:
                await store.delete(each)
                deleted.add(each)
        await store.delete(name)
    return Collected(len(deleted), len(noted.objects) - len(deleted))
