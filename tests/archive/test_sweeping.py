"""Cuts, their removal, and the collection of objects without a name."""

from __future__ import annotations

from random import Random

import pytest

from penstock.archive.collection import GRACE_MS
from penstock.archive.cuts import Cut, CutPartition, CutTopic
from penstock.archive.documents import encode
from penstock.archive.errors import ArchiveDamaged, ArchiveRefused
from penstock.archive.manifests import trimmed
from penstock.archive.names import BACKUP, TIER, cut_name, object_name
from penstock.archive.objects import put_certain
from penstock.archive.sweeping import (
    collect,
    cut_manifest,
    earlier_now,
    find_cut,
    list_cuts,
    named_objects,
    prune_cuts,
)
from penstock.archive.verifying import verify_partition
from penstock.archive.writing import PartitionWriter
from penstock.model.ids import format_topic_id
from penstock.testing.simulation.object_store import SimulatedStore, StoreFaults
from penstock.testing.simulation.ports import SimRng
from tests.archive.logs import OWNER, FixedClock, chain, in_loop, log_of, new_store, writer

RNG = SimRng(Random(3))


async def add_cut(store: SimulatedStore, time_ms: int, start: int, count: int) -> tuple[str, int]:
    """Copy more batches and write a cut; returns its name and the end of the log."""
    archived = writer(store)
    await archived.open(0, compacted=False)
    await archived.append(log_of(start, count))
    manifest = await archived.commit(0, 0)
    partition = CutPartition(
        partition=OWNER.partition,
        manifest=manifest.number,
        sha256=archived.digest,
        log_start_offset=0,
        end_offset=manifest.next_offset,
        last_stable_offset=manifest.next_offset,
    )
    topic = CutTopic(
        topic=OWNER.topic,
        topic_id=format_topic_id(OWNER.topic_id),
        replication_factor=1,
        partitions=(partition,),
    )
    name = cut_name(time_ms, RNG.token(8))
    await put_certain(store, name, encode(Cut(archive="a", time_ms=time_ms, cluster_id="c", topics=(topic,))))
    return name, manifest.next_offset


async def check_all(store: SimulatedStore) -> None:
    for time_ms in (await list_cuts(store)).values():
        _, cut = await find_cut(store, time_ms)
        for topic in cut.topics:
            for partition in topic.partitions:
                await verify_partition(store, await cut_manifest(store, topic, partition))


async def three_cuts(store: SimulatedStore) -> list[str]:
    names, end = [], 0
    for n in range(3):
        name, end = await add_cut(store, 1000 * (n + 1), end, 6)
        names.append(name)
    return names


@in_loop
async def test_cuts_are_found_by_time() -> None:
    store = new_store()
    names = await three_cuts(store)
    assert (await find_cut(store, None))[0] == names[2]
    assert (await find_cut(store, 2500))[0] == names[1]
    with pytest.raises(ArchiveRefused, match="no cut at or before"):
        await find_cut(store, 999)


@in_loop
async def test_nothing_that_a_cut_names_is_collected() -> None:
    clock = FixedClock(0)
    store = new_store(clock=clock)
    await three_cuts(store)
    named = (await named_objects(store)).objects
    for _ in range(4):
        await collect(store, RNG, clock.time_ms)
        clock.time_ms += GRACE_MS
        await check_all(store)
    # What goes are segments that were merged before any manifest named them.
    assert named == {name for name in store.objects if name.startswith("topics/")}


@in_loop
async def test_objects_of_removed_cuts_go_after_the_grace_period() -> None:
    clock = FixedClock(0)
    store = new_store(clock=clock)
    names = await three_cuts(store)
    assert await prune_cuts(store, 2500) == names[:2]
    clock.time_ms += GRACE_MS
    first = await collect(store, RNG, clock.time_ms)
    assert first.deleted == 0 and first.waiting > 0, "the first listing only notes them"
    clock.time_ms += GRACE_MS - 1
    assert (await collect(store, RNG, clock.time_ms)).deleted == 0
    clock.time_ms += 1
    assert (await collect(store, RNG, clock.time_ms)).deleted == first.waiting
    assert (await collect(store, RNG, clock.time_ms)).waiting == 0
    await check_all(store)
    await add_cut(store, 9000, (await find_cut(store, None))[1].topics[0].partitions[0].end_offset, 6)
    await check_all(store)


@in_loop
async def test_the_newest_cut_is_never_removed() -> None:
    store = new_store()
    names = await three_cuts(store)
    assert await prune_cuts(store, 10**15) == names[:2]
    assert list(await list_cuts(store)) == names[2:]


@in_loop
async def test_a_wrong_clock_of_the_collector_deletes_nothing() -> None:
    store = new_store(clock=FixedClock())
    await three_cuts(store)
    await prune_cuts(store, 10**15)
    for now_ms in (0, 10**15, 10**12):
        assert (await collect(store, RNG, now_ms % 10**13)).deleted == 0


@in_loop
async def test_a_wrong_clock_of_the_store_deletes_nothing() -> None:
    clock = FixedClock()
    store = new_store(clock=clock)
    await three_cuts(store)
    await prune_cuts(store, 10**15)
    now_ms = clock.time_ms
    for jump_ms in (0, GRACE_MS, 10 * GRACE_MS):
        clock.time_ms += jump_ms
        found = await collect(store, RNG, now_ms)
        assert found.deleted == 0 < found.waiting


@in_loop
async def test_lists_of_a_clock_that_was_ahead_are_made_again() -> None:
    clock = FixedClock()
    store = new_store(clock=clock)
    await three_cuts(store)
    await prune_cuts(store, 10**15)
    await collect(store, RNG, clock.time_ms + 10**11)
    deleted = []
    for _ in range(3):
        deleted.append((await collect(store, RNG, clock.time_ms)).deleted)
        clock.time_ms += GRACE_MS

    assert deleted[0] == 0 < deleted[1]


@in_loop
async def test_cuts_are_removed_by_the_clocks_of_backup_and_store() -> None:
    clock = FixedClock(1000)
    store = new_store(clock=clock)
    _, end = await add_cut(store, 10**13, 0, 6)  # the clock of the backup was ahead
    clock.time_ms = 10**12
    _, end = await add_cut(store, 1000, end, 6)  # and behind
    await add_cut(store, 2 * 10**13, end, 6)

    assert await prune_cuts(store, 10**12) == []
    assert await earlier_now(store, RNG, 10**13) == 10**12
    assert await earlier_now(store, RNG, 10**11) == 10**11
    store.faults = StoreFaults(listing_lag_ms=10**9)
    assert await earlier_now(store, RNG, 10**13) == 0
    assert not [name for name in store.objects if name.startswith("probes/")]


@in_loop
async def test_pages_of_records_that_the_archive_may_have_stay() -> None:
    """The store has lost the manifest that names a page; an operator may bring it back."""
    clock = FixedClock()
    store = new_store(clock=clock)
    end = await write(store, TIER, 0)
    kept, gone = (OWNER.object(object_name(offset, 0, bytes(8), "page")) for offset in (0, 5))
    await put_certain(store, kept, b"segments")
    await put_certain(store, gone, b"segments")
    await collect_twice(store, clock)
    assert {kept, gone} <= store.objects.keys()

    manifests = chain(store, name=TIER)
    newest = await manifests.load()
    assert newest is not None
    await manifests.advance(trimmed(newest, end), 0)

    await collect_twice(store, clock)
    assert not {kept, gone} & store.objects.keys()


@in_loop
async def test_a_damaged_document_stops_the_collection() -> None:
    clock = FixedClock(0)
    store = new_store(clock=clock)
    names = await three_cuts(store)
    await prune_cuts(store, 2500)
    await collect(store, RNG, clock.time_ms)
    clock.time_ms += 2 * GRACE_MS
    store.rot(names[2])
    before = dict(store.objects)
    with pytest.raises((ArchiveDamaged, ArchiveRefused)):
        await collect(store, RNG, clock.time_ms)
    assert store.objects == before


async def collect_twice(store: SimulatedStore, clock: FixedClock) -> None:
    for _ in range(2):
        await collect(store, RNG, clock.time_ms)
        clock.time_ms += GRACE_MS
    await collect(store, RNG, clock.time_ms)


def segments_of(store: SimulatedStore) -> set[str]:
    return {name for name in store.objects if name.endswith(".segment")}


@pytest.mark.parametrize("writer_name", [TIER, BACKUP])
@in_loop
async def test_segments_behind_a_rolled_back_manifest_stay(writer_name: str) -> None:
    """The store has lost the newest manifests: their segments may be the only copy of records."""
    clock = FixedClock()
    store = new_store(clock=clock)
    end = await write(store, writer_name, 0)
    before = dict(store.objects)
    await write(store, writer_name, end)
    after = dict(store.objects)
    for name in after.keys() - before.keys():
        if name.endswith(".manifest"):
            store.lose(name)

    await collect_twice(store, clock)

    assert segments_of(store) == {name for name in after if name.endswith(".segment")}
    for name in [each for each in store.objects if each.endswith(".manifest")]:
        store.lose(name)
    await collect_twice(store, clock)
    assert segments_of(store) == {name for name in after if name.endswith(".segment")}


@in_loop
async def test_segments_of_leaders_stay_after_all_of_their_manifests_were_lost() -> None:
    """The backup of a tiered topic has come past them: it has their records, the cluster has not."""
    clock = FixedClock()
    store = new_store(clock=clock)
    end = await write(store, TIER, 0)
    put_by_leaders = segments_of(store)
    await write(store, BACKUP, 0, tiered=True)
    await write(store, BACKUP, end, tiered=True)
    for name in [each for each in store.objects if f"/{TIER}/" in each]:
        store.lose(name)

    await collect_twice(store, clock)

    assert put_by_leaders <= segments_of(store)


@in_loop
async def test_segments_without_a_name_go_when_a_manifest_has_come_past_them() -> None:
    clock = FixedClock()
    store = new_store(clock=clock)
    end = await write(store, TIER, 0)
    failed = OWNER.object(object_name(end, 0, bytes(8), "segment"))
    await put_certain(store, failed, b"a copy that failed")
    await collect_twice(store, clock)
    assert failed in store.objects

    await write(store, TIER, end)

    await collect_twice(store, clock)
    assert failed not in store.objects and segments_of(store)


async def write(store: SimulatedStore, writer_name: str, start: int, *, tiered: bool = False) -> int:
    """Continue the manifests of a writer by segments of their own; returns the end."""
    manifests = chain(store, name=writer_name)
    archived = PartitionWriter(store, manifests, RNG, leader_epoch=0, segment_bytes=600)
    await archived.open(0, compacted=False, tiered=tiered)
    await archived.append(log_of(start, 20, size=100))
    return (await archived.commit(0, 0)).next_offset


@pytest.mark.parametrize("seed", range(12))
@in_loop
async def test_collections_beside_writers_over_a_faulty_store(seed: int) -> None:
    """Cuts, removals and collections in random order: all cuts that are there can be restored."""
    rng, clock = Random(seed), FixedClock()
    store = new_store(seed, clock)
    end = 0
    for _ in range(30):
        clock.time_ms += rng.choice([1000, GRACE_MS // 2, GRACE_MS])
        store.faults = StoreFaults(failure=0.03, lost_answer=0.03, wrong_bytes=0.01, listing_lag_ms=500)
        try:
            match rng.randrange(4):
                case 0 | 1:
                    _, end = await add_cut(store, clock.time_ms, end, 4)
                case 2:
                    await prune_cuts(store, clock.time_ms - 3 * GRACE_MS)
                case _:
                    await collect(store, RNG, clock.time_ms)
        except (OSError, ArchiveDamaged, ArchiveRefused):
            store.faults = StoreFaults()
            archived = writer(store)
            end = await archived.open(0, compacted=False)
        store.faults = StoreFaults()
        await check_all(store)
