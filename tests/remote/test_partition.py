"""Reads of archived logs through the cache: every offset, bounded files, faults of the store."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from random import Random
from tempfile import TemporaryDirectory

import pytest

from penstock.archive.batches import split_batches
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged
from penstock.broker.base.system_ports import OsFiles
from penstock.model.errors import RemoteReadFailed
from penstock.objectstore.address import parse_address
from penstock.objectstore.object_store import open_store
from penstock.records.batch import read_header
from penstock.remote.source import read_buffer
from penstock.storage.scan import ColdRemote
from penstock.testing.simulation.object_store import SimulatedStore, StoreFaults
from tests.archive.logs import batch, in_loop, log_of, marker, new_store, writer
from tests.remote.readers import Reader


async def archive(
    store: SimulatedStore, batches: list[bytes], *, segment_bytes: int = 5000, compacted: bool = False
) -> Manifest:
    archived = writer(store, segment_bytes=segment_bytes)
    await archived.open(read_header(batches[0]).base_offset, compacted=compacted)
    await archived.append(batches)
    return await archived.commit(0, 0)


async def read_on(reader: Reader, manifest: Manifest, max_bytes: int = 700) -> bytes:
    """All batches from the start on, as a consumer reads them: a batch that is cut is read again."""
    offset, found = manifest.base_offset, b""
    while offset < manifest.next_offset:
        data = await reader.read(offset, max_bytes)
        for each in split_batches(data, "it", whole=False):
            found += each
            offset = read_header(each).next_offset
    return found


@in_loop
async def test_a_read_at_any_offset_starts_with_its_batch() -> None:
    for chunk_bytes in (1, 4096, 10_000, 1 << 20):
        store, batches = new_store(), log_of(0, 150, size=300)
        manifest = await archive(store, batches, segment_bytes=20_000)
        assert len(manifest.segments) > 3
        reader = Reader(store, manifest, chunk_bytes=chunk_bytes)
        for each in batches:
            header = read_header(each)
            for offset in range(header.base_offset, header.next_offset):
                found = await reader.read(offset, 1)
                assert found == each, (chunk_bytes, offset)
        assert await read_on(reader, manifest) == b"".join(batches)
        assert not reader.failures


@in_loop
async def test_a_batch_that_does_not_fit_is_read_only_if_it_has_to_be() -> None:
    store, batches = new_store(), log_of(0, 3)
    reader = Reader(store, await archive(store, batches))
    assert await reader.read(0, len(batches[0]) - 1, at_least_one=False) == b""
    assert await reader.read(0, len(batches[0]), at_least_one=False) == batches[0]
    assert (await reader.read(0, len(batches[0]) + 20, at_least_one=False))[:-20] == batches[0]


@in_loop
async def test_gaps_of_compaction_are_skipped_across_chunks_and_segments() -> None:
    store = new_store()
    batches = [each for n, each in enumerate(log_of(0, 200, size=200)) if n % 7 > 4]
    manifest = await archive(store, batches, segment_bytes=8000, compacted=True)
    reader = Reader(store, manifest, chunk_bytes=4096)
    headers = [read_header(each) for each in batches]
    for offset in range(manifest.base_offset, headers[-1].next_offset):
        expected = next(b for b, h in zip(batches, headers, strict=True) if h.last_offset >= offset)
        assert await reader.read(offset, 1) == expected


@in_loop
async def test_the_files_of_the_cache_stay_within_their_limit_and_have_no_names() -> None:
    """So that nothing is left behind by a process that is killed."""
    store, batches = new_store(), log_of(0, 400, size=500)
    manifest = await archive(store, batches, segment_bytes=50_000)
    with TemporaryDirectory() as folder:
        reader = Reader(
            store, manifest, chunk_bytes=10_000, cache_bytes=40_000, files=OsFiles(), folder=folder
        )
        kept = await reader.range(0, 1)
        first = kept.read()
        assert await read_on(reader, manifest) == b"".join(batches)
        assert 20_000 < reader.cache.chunks.size <= 40_000
        # The first chunk has made room for others, and a response that has its file is still sent.
        assert kept.read() == first == batches[0]
        assert os.listdir(folder) == []
        assert bytes_held(folder) == reader.cache.chunks.size + kept.file.size()
        del kept
        assert bytes_held(folder) == reader.cache.chunks.size == reader.cache.stats.cached_bytes
        await reader.cache.close()
        assert bytes_held(folder) == 0


@in_loop
async def test_small_chunks_do_not_take_all_descriptors() -> None:
    store, batches = new_store(), log_of(0, 700, size=10)
    manifest = await archive(store, batches, segment_bytes=1)
    assert len(manifest.segments) + sum(page.segments for page in manifest.pages) == 700
    reader = Reader(store, manifest, cache_bytes=1 << 30)
    assert await read_on(reader, manifest) == b"".join(batches)
    assert len(reader.cache.chunks) == 512


@in_loop
async def test_manifests_and_maps_are_read_again_if_there_is_no_room_for_all() -> None:
    store, batches = new_store(), log_of(0, 200, size=300)
    manifest = await archive(store, batches)
    assert len(manifest.segments) > 8
    document_bytes = 600 * (len(manifest.segments) + 1) + 3000
    reader = Reader(store, manifest, document_bytes=document_bytes)
    assert await read_on(reader, manifest) == b"".join(batches)
    assert reader.cache.documents.size <= document_bytes and len(reader.cache.documents) <= 3


def bytes_held(folder: str) -> int:
    """The size of all files of a folder that this process has open."""
    size = 0
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if os.readlink(f"/proc/self/fd/{descriptor}").startswith(f"{folder}/"):
                size += os.fstat(int(descriptor)).st_size
    return size


@in_loop
async def test_a_chunk_is_read_once_and_chunks_ahead_of_a_reader_that_goes_on() -> None:
    store, batches = new_store(), log_of(0, 300, size=800)
    manifest = await archive(store, batches, segment_bytes=1 << 20)
    assert len(manifest.segments) == 1
    reader = Reader(store, manifest, chunk_bytes=20_000)
    name = manifest.segments[0].name
    await reader.read(0, 1)
    await reader.read(1, 1)
    assert [n for n in range(20) if (name, n) in reader.cache.chunks] == [0], "nobody goes on yet"
    calls = reader.cache.stats.requests
    await reader.read(0, 20_000)
    assert reader.cache.stats.requests == calls, "the chunk is in the cache"
    assert await read_on(reader, manifest, 5000) == b"".join(batches)
    reader = Reader(store, manifest, chunk_bytes=20_000)
    offset = 0
    while (name, 1) not in reader.cache.chunks:
        *_, last = split_batches(await reader.read(offset, 5000), "it", whole=False)
        offset = read_header(last).next_offset
    await asyncio.gather(*reader.cache.loader._tasks.values())
    assert [n for n in range(20) if (name, n) in reader.cache.chunks] == [0, 1, 2]


@in_loop
async def test_bytes_that_the_store_has_changed_are_never_served() -> None:
    store, batches = new_store(), log_of(0, 60, size=300)
    manifest = await archive(store, batches)
    store.faults = StoreFaults(wrong_bytes=0.3, short_reads=0.1, failure=0.1)
    reader = Reader(store, manifest, chunk_bytes=4096, cache_bytes=5000)
    random, refused, served = Random(3), 0, 0
    for _ in range(300):
        reader.clock.time_ms += 60_000
        each = random.choice(batches)
        try:
            assert await reader.read(read_header(each).base_offset, 1) == each
            served += 1
        except RemoteReadFailed:
            refused += 1
    assert served > 50 and refused > 10 and len(reader.failures) >= refused


@in_loop
async def test_a_store_that_is_down_is_asked_less_often_and_cached_chunks_are_served() -> None:
    store, batches = new_store(), log_of(0, 100, size=300)
    manifest = await archive(store, batches)
    reader = Reader(store, manifest)
    await reader.read(0, 1)
    store.is_down = True
    far = manifest.segments[-1].base_offset
    for _ in range(10):
        with pytest.raises(RemoteReadFailed, match="the store has failed"):
            await reader.read(far, 1)
        assert await reader.read(0, 1) == batches[0]
    assert len(reader.failures) == 1, "within the pause the store is not asked"
    for pause_s in (0.5, 1, 2, 4, 8, 10, 10):
        reader.clock.time_ms += int(1000 * pause_s) - 1
        with pytest.raises(RemoteReadFailed):
            await reader.read(far, 1)
        before = len(reader.failures)
        reader.clock.time_ms += 1
        with pytest.raises(RemoteReadFailed):
            await reader.read(far, 1)
        assert len(reader.failures) == before + 1
    store.is_down = False
    reader.clock.time_ms += 10_000
    assert read_header(await reader.read(far, 200)).base_offset == far


@in_loop
async def test_a_slow_store_does_not_hold_a_request_for_longer_than_it_waits() -> None:
    store, batches = new_store(), log_of(0, 10)
    reader = Reader(store, await archive(store, batches), wait_s=0.01)
    store.faults = StoreFaults(delay_s=0.2)
    waits = 0
    while True:
        try:
            found = reader.partition.read(0, 1, True)
        except ColdRemote as cold:
            waits += not await cold.load(reader.workers)
        else:
            break
    assert waits > 1 and found is not None and found.read() == batches[0]


@in_loop
async def test_aborted_transactions_are_found_where_their_records_are() -> None:
    """Their markers may be segments later; committed and open ones are not listed."""
    store = new_store()
    offset, batches = 0, []

    def add(make: bytes) -> None:
        nonlocal offset
        batches.append(make)
        offset = read_header(make).next_offset

    def write(producer: int, sequence: int) -> None:
        add(batch(offset, 1, producer_id=producer, sequence=sequence, transactional=True, size=400))

    write(7, 0)
    write(8, 0)
    write(9, 0)
    for _ in range(40):
        add(batch(offset, 1, size=400))
    add(marker(offset, 7, committed=False))
    aborted_at = offset - 1
    add(marker(offset, 8, committed=True))
    for _ in range(40):
        add(batch(offset, 1, size=400))
    manifest = await archive(store, batches, segment_bytes=4000)
    assert len(manifest.segments) > 5
    reader = Reader(store, manifest, chunk_bytes=2000)
    for start, end in ((0, 1), (1, 3), (20, 21), (aborted_at, aborted_at + 1)):
        await reader.read(start, 1)
        expected = [(7, 0)]
        assert reader.partition.aborted_transactions(start, end) == expected, start
    await reader.read(aborted_at + 5, 1)
    assert reader.partition.aborted_transactions(aborted_at + 5, offset) == []
    found = reader.partition._find(0)
    assert found is not None
    assert [each.producer_id for each in found[0].open] == [9]


@in_loop
async def test_lookups_by_timestamp() -> None:
    store = new_store()
    batches = [batch(3 * n, 3, timestamp=1000 * (n if n != 50 else 900), size=300) for n in range(100)]
    manifest = await archive(store, batches, segment_bytes=10_000)
    reader = Reader(store, manifest, chunk_bytes=4096)
    find = reader.partition.batch_at_or_after
    for n in (0, 1, 37, 49):
        dated = await reader.call(lambda n=n: find(1000 * n + 1, 0))  # type: ignore[misc]
        assert dated is not None and (found := dated.first()) is not None
        assert (found.offset, found.timestamp) == (3 * n + 1, 1000 * n + 1)
    dated = await reader.call(lambda: find(60_000, 0))
    assert dated is not None and dated.first().offset == 150, "the first in the order of offsets"  # type: ignore[union-attr]
    dated = await reader.call(lambda: find(60_000, 152))
    assert dated is not None and dated.first().offset == 152  # type: ignore[union-attr]
    dated = await reader.call(lambda: find(60_000, 153))
    assert dated is not None and dated.first().offset == 180  # type: ignore[union-attr]
    assert await reader.call(lambda: find(900_003, 0)) is None
    assert await reader.call(reader.partition.max_timestamp) == 900_002


@in_loop
async def test_ranges_come_in_the_memory_of_the_library_and_have_their_length() -> None:
    pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
    library, simulated = open_store(parse_address("memory:///")), new_store()
    for store in (library, simulated):
        await store.put_new("a", b"0123456789")
        found = await read_buffer(store, "a", 2, 6)
        assert bytes(found) == b"2345" and isinstance(found, memoryview) == (store is library)
        with pytest.raises(ArchiveDamaged, match="a has 2 bytes where 4 were read"):
            await read_buffer(store, "a", 8, 12)
        with pytest.raises(ArchiveDamaged, match="b is missing"):
            await read_buffer(store, "b", 0, 4)
