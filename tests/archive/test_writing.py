"""The archive of one partition, written in steps, and read again at every offset."""

from __future__ import annotations

from random import Random

import pytest

from penstock.archive.batches import split_batches
from penstock.archive.chain import ManifestChain, newest_manifest
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged, ArchiveError, WriterDeposed
from penstock.archive.names import BACKUP, TIER
from penstock.archive.reading import PartitionReader
from penstock.archive.verifying import verify_partition
from penstock.archive.writing import PartitionWriter
from penstock.ports import ObjectStore
from penstock.records.batch import read_header
from penstock.testing.simulation.object_store import SimulatedStore, StoreFaults
from penstock.testing.simulation.ports import SimRng
from tests.amounts import amount
from tests.archive.logs import OWNER, FixedClock, batch, chain, in_loop, log_of, marker, new_store, writer


async def read_all(store: ObjectStore, manifest: Manifest, start: int | None = None) -> bytes:
    reader = PartitionReader(store, manifest)
    offset, found = manifest.base_offset if start is None else start, b""
    while data := await reader.read(offset, 700):
        found += data
        *_, last = split_batches(data, "it")
        offset = read_header(last).next_offset
    return found


async def write(
    store: SimulatedStore, batches: list[bytes], *, log_start: int = 0, compacted: bool = False
) -> Manifest:
    archived = writer(store)
    await archived.open(log_start, compacted=compacted)
    await archived.append(batches)
    return await archived.commit(log_start, 0)


@in_loop
async def test_batches_come_back_unchanged_from_every_offset() -> None:
    store, batches = new_store(), log_of(0, 60)
    manifest = await write(store, batches)
    assert len(manifest.segments) > 2
    assert await read_all(store, manifest) == b"".join(batches)
    for each in batches:
        header = read_header(each)
        for offset in range(header.base_offset, header.next_offset):
            found = await PartitionReader(store, manifest).read(offset, 1)
            assert found == each, offset
    assert await PartitionReader(store, manifest).read(manifest.next_offset, 1) == b""
    verified = await verify_partition(store, manifest)
    assert (verified.log_bytes, verified.segments) == (manifest.log_size, len(manifest.segments))


@in_loop
async def test_an_archive_is_continued_by_another_process() -> None:
    """Producers, epochs and open transactions go on where the process before ended."""
    store = new_store()
    await write(store, [batch(0, 2, producer_id=7, transactional=True), *log_of(2, 10)])
    archived = writer(store)
    next_offset = await archived.open(0, compacted=False)
    assert next_offset == 21
    await archived.append([marker(21, 7, committed=False), *log_of(22, 5)])
    manifest = await archived.commit(0, 0)
    await verify_partition(store, manifest)
    last = writer(store)
    await last.open(0, compacted=False)
    assert last._state.producers.ongoing == {} and 7 in last._state.producers.states


@in_loop
async def test_many_small_steps_leave_few_segments() -> None:
    store, batches = new_store(), log_of(0, 300)
    for n, each in enumerate(batches):
        archived = writer(store, segment_bytes=20_000)
        await archived.open(0, compacted=False)
        await archived.append([each])
        manifest = await archived.commit(0, 0)
        assert len(manifest.segments) <= 4 + n.bit_length()
    assert await read_all(store, manifest) == b"".join(batches)
    await verify_partition(store, manifest)


@in_loop
async def test_nothing_new_writes_nothing() -> None:
    store = new_store()
    manifest = await write(store, log_of(0, 5))
    before = dict(store.objects)
    assert await write(store, []) == manifest
    assert store.objects == before


@in_loop
async def test_thousands_of_segments_are_in_pages() -> None:
    store = new_store()
    archived = writer(store, segment_bytes=1)
    await archived.open(0, compacted=False)
    batches = [batch(n) for n in range(700)]
    await archived.append(batches)
    manifest = await archived.commit(0, 0)
    assert (len(manifest.pages), len(manifest.segments)) == (2, 700 - 512)
    reader = PartitionReader(store, manifest)
    for offset in (0, 255, 256, 511, 512, 699):
        assert await reader.read(offset, 1) == batches[offset]
    assert await reader.offset_of_time(1300) == (1300, 300)
    assert (await verify_partition(store, manifest)).segments == 700
    store.rot(OWNER.object(manifest.pages[1].name))
    with pytest.raises(ArchiveDamaged, match="page"):
        await PartitionReader(store, manifest).read(300, 1)


@in_loop
async def test_lookups_by_timestamp() -> None:
    """Timestamps that do not rise with offsets: the first record of the time or later counts."""
    store, rng = new_store(), Random(4)
    batches = [batch(2 * n, 2, timestamp=rng.randrange(5000)) for n in range(80)]
    manifest = await write(store, batches)
    reader = PartitionReader(store, manifest)
    records = []
    for each in batches:
        header = read_header(each)
        records += [(header.base_timestamp + n, header.base_offset + n) for n in range(2)]
    for timestamp in range(0, 5100, 37):
        expected = next((found for found in records if found[0] >= timestamp), None)
        assert await reader.offset_of_time(timestamp) == expected, timestamp


@in_loop
async def test_deletion_of_uncopied_records_at_the_source() -> None:
    store = new_store()
    await write(store, log_of(0, 5))
    manifest = await write(store, log_of(500, 5), log_start=500)
    assert (manifest.base_offset, manifest.log_start_offset) == (500, 500)
    await verify_partition(store, manifest)


@in_loop
async def test_a_log_start_in_the_middle_of_a_batch() -> None:
    store = new_store()
    manifest = await write(store, [batch(10, 5), batch(15)], log_start=12)
    assert (manifest.base_offset, manifest.log_start_offset, manifest.next_offset) == (10, 12, 16)
    assert await PartitionReader(store, manifest).offset_of_time(0) == (1012, 12)


@in_loop
async def test_compacted_logs_have_gaps_and_others_do_not() -> None:
    store = new_store()
    manifest = await write(store, [batch(3), batch(9)], compacted=True)
    await verify_partition(store, manifest)
    assert await PartitionReader(store, manifest).read(4, 1) == batch(9)
    other = new_store()
    broken = await write(other, [batch(3), batch(9)])
    with pytest.raises(ArchiveDamaged, match="lacks 8 offsets, and its topic is not compacted"):
        await verify_partition(other, broken)


@in_loop
async def test_every_lost_or_damaged_object_is_found() -> None:
    batches = log_of(0, 60)
    for n in range(3):
        for lost in (False, True):
            store = new_store(n)
            manifest = await write(store, batches)
            name = OWNER.object(manifest.segments[n].name)
            (store.lose if lost else store.rot)(name)
            with pytest.raises(ArchiveDamaged, match=r"\.segment"):
                await verify_partition(store, manifest)


@pytest.mark.parametrize("seed", range(amount(16)))
@in_loop
async def test_reads_from_a_store_with_wrong_bytes_are_right_or_fail(seed: int) -> None:
    store, batches = new_store(seed), log_of(0, 60)
    manifest = await write(store, batches)
    store.faults = StoreFaults(wrong_bytes=0.2, short_reads=0.1, failure=0.1)
    reader = PartitionReader(store, manifest)
    right = 0
    for each in batches:
        try:
            found = await reader.read(read_header(each).base_offset, 1)
        except (ArchiveError, OSError):
            continue
        assert found == each
        right += 1
    assert right


@pytest.mark.parametrize("seed", range(amount(16)))
@in_loop
async def test_writers_over_a_faulty_store(seed: int) -> None:
    """After each step, what the newest manifest names is there; acknowledged steps are never lost."""
    rng = Random(seed)
    store = new_store(
        seed, faults=StoreFaults(failure=0.1, lost_answer=0.1, wrong_bytes=0.02, listing_lag_ms=1000)
    )
    batches = log_of(0, 80)
    acknowledged, epoch = 0, 0
    while acknowledged < len(batches):
        epoch += rng.random() < 0.2
        archived = writer(store, leader_epoch=epoch, segment_bytes=3000)
        try:
            await archived.open(0, compacted=False)
            start = next(
                (n for n, b in enumerate(batches) if read_header(b).base_offset == archived.next_offset),
                len(batches),
            )
            assert start >= acknowledged, "an acknowledged step was lost"
            end = min(start + rng.randrange(1, 9), len(batches))
            await archived.append(batches[start:end])
            await archived.commit(0, 0)
            acknowledged = end
        except (OSError, ArchiveError):
            pass
        faults, store.faults = store.faults, StoreFaults()
        newest = await newest_manifest(store, OWNER, BACKUP)
        if newest is not None:
            await verify_partition(store, newest[0])
            assert b"".join(batches).startswith(await read_all(store, newest[0]))
        store.faults = faults


@in_loop
async def test_a_deposed_leader_goes_on_uploading() -> None:
    store = new_store()
    old, new = writer(store, leader_epoch=1), writer(store, leader_epoch=2)
    for each in (old, new):
        await each.open(0, compacted=False)
    await old.append(log_of(0, 5))
    await new.append(log_of(0, 3))
    manifest = await new.commit(0, 0)
    with pytest.raises(WriterDeposed):
        await old.commit(0, 0)
    newest = await newest_manifest(store, OWNER, BACKUP)
    assert newest is not None and newest[0] == manifest
    await verify_partition(store, manifest)


@in_loop
async def test_a_segment_that_the_store_has_damaged_gets_no_name() -> None:
    """The invariant of the archive: a manifest names only what is there with its checksum."""
    store = new_store(faults=StoreFaults(wrong_puts=1.0))
    with pytest.raises(ArchiveDamaged, match="the store returns other bytes"):
        await write(store, log_of(0, 5))
    assert await newest_manifest(store, OWNER, BACKUP) is None


@in_loop
async def test_segments_that_may_have_been_collected_get_no_name() -> None:
    """A machine that sleeps for a day between a put and its manifest: the collector has run meanwhile."""
    clock = FixedClock()
    store = new_store(clock=clock)
    chain = ManifestChain(store, "archive-id", OWNER, BACKUP, SimRng(Random(1)), clock)
    archived = PartitionWriter(store, chain, SimRng(Random(2)), leader_epoch=0, segment_bytes=500)
    await archived.open(0, compacted=False)
    await archived.append(log_of(0, 20))
    assert store.objects
    clock.time_ms += 24 * 3600 * 1000
    with pytest.raises(TimeoutError, match="may be collected"):
        await archived.commit(0, 0)
    await archived.open(0, compacted=False)
    await archived.append(log_of(0, 20))
    await verify_partition(store, await archived.commit(0, 0))


@in_loop
async def test_a_manifest_that_was_read_long_ago_is_not_continued() -> None:
    """It may have been lost since, and what only it has named may have been collected."""
    clock = FixedClock()
    store = new_store(clock=clock)
    chain = ManifestChain(store, "archive-id", OWNER, BACKUP, SimRng(Random(1)), clock)
    archived = PartitionWriter(store, chain, SimRng(Random(2)), leader_epoch=0, segment_bytes=500)
    await archived.open(0, compacted=False)
    await archived.append(log_of(0, 20))
    manifest = await archived.commit(0, 0)
    was_old = archived.is_old
    store.lose(OWNER.manifest(BACKUP, manifest.number))
    clock.time_ms += 24 * 3600 * 1000
    assert (was_old, archived.is_old) == (False, True)
    with pytest.raises(TimeoutError, match="may be collected"):
        await archived.commit(0, 0)
    assert await archived.open(0, compacted=False) == 0


async def _tiered(store: SimulatedStore, batches: list[bytes]) -> Manifest:
    """Segments as leaders put them."""
    tier = PartitionWriter(
        store, chain(store, name=TIER), SimRng(Random(5)), leader_epoch=0, segment_bytes=400
    )
    await tier.open(0, compacted=False)
    await tier.append(batches)
    return await tier.commit(0, 0)


@in_loop
async def test_segments_of_tiered_storage_are_named_and_not_copied() -> None:
    store, batches = new_store(), log_of(0, 30)
    tier = await _tiered(store, batches[:20])
    before = set(store.objects)
    backup = writer(store)
    await backup.open(0, compacted=False)
    for entry in tier.segments:
        backup.adopted.add(entry.name)
        log = await backup.adopt(entry)
        assert log is not None and len(log) == entry.log_size
    await backup.append(batches[20:])
    manifest = await backup.commit(0, 0)
    assert manifest.segments[: len(tier.segments)] == tier.segments
    assert len([name for name in set(store.objects) - before if name.endswith(".segment")]) == 1
    await verify_partition(store, manifest)
    assert await read_all(store, manifest) == b"".join(batches)


@in_loop
async def test_a_segment_that_does_not_continue_the_archive_is_not_named() -> None:
    store, batches = new_store(), log_of(0, 30)
    tier = await _tiered(store, batches)
    first, second, *_ = tier.segments
    backup = writer(store)
    await backup.open(0, compacted=False)
    assert await backup.adopt(second) is None, "it begins behind the next offset"
    store.rot(OWNER.object(first.name))
    assert await backup.adopt(first) is None, "it is damaged"
    await backup.append(batches)
    manifest = await backup.commit(0, 0)
    assert not {first.name, second.name} & {each.name for each in manifest.segments}
    await verify_partition(store, manifest)
