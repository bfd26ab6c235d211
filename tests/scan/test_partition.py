"""What a scan reads of archived segments, and which transactions it hides."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from penstock.archive.cuts import CutPartition, OpenTransaction
from penstock.archive.documents import Manifest
from penstock.archive.errors import ArchiveDamaged
from penstock.archive.names import TIER
from penstock.archive.objects import open_archive
from penstock.archive.writing import PartitionWriter
from penstock.scan.partition import PartitionScan, source_of
from penstock.scan.parts import Part, shown
from penstock.scan.place import ArchivePlace, read_blocks
from penstock.scan.tiers import copied
from penstock.testing.simulation.object_store import SimulatedStore
from penstock.testing.simulation.ports import SimRng
from tests.archive.logs import OWNER, batch, chain, in_loop, marker, new_store, writer

PLACE = ArchivePlace("/nowhere")
#: of `transactions`
MARKERS = {3, 20, 25}
HIDDEN = {6, 12, 30}


async def archived(store: SimulatedStore, batches: list[bytes], segment_bytes: int = 1000) -> Manifest:
    found = writer(store, segment_bytes=segment_bytes)
    await found.open(0, compacted=False)
    await found.append(batches)
    return await found.commit(0, 0)


async def offsets(
    store: SimulatedStore, manifest: Manifest, part: Part, *, committed: bool = True, since_ms: int = 0
) -> list[int]:
    """The base offsets of the batches with records that a scan shows."""
    opened = PartitionScan(source_of(store, part, manifest), manifest, part, committed, since_ms)
    found: list[int] = []
    async for chunk in opened.chunks():
        data = await read_blocks(store, *opened.placed(chunk))
        placed = shown(opened.batches(chunk, data), chunk.hidden)
        found += [header.base_offset for _, header in placed if not header.is_control]
    return found


def part(first: int, stop: int, cut: CutPartition | None = None) -> Part:
    return Part(PLACE, "", "", first, stop, cut)


def transactions() -> list[bytes]:
    """Aborted: 6 and 12 of producer 7. Committed: 1 of 7, 4 of 8. Open: 30 of 9."""
    batches = [batch(n, size=300) for n in range(40)]
    for offset, producer, sequence in ((1, 7, 0), (4, 8, 0), (6, 7, 1), (12, 7, 2), (30, 9, 0)):
        batches[offset] = batch(offset, producer_id=producer, sequence=sequence, transactional=True, size=300)
    for offset, producer, is_commit in ((3, 7, True), (20, 8, True), (25, 7, False)):
        batches[offset] = marker(offset, producer, committed=is_commit)
    return batches


@in_loop
async def test_aborted_records_are_hidden_wherever_a_scan_begins() -> None:
    """The marker is many segments behind the records, and behind the end of the part."""
    store = new_store()
    manifest = await archived(store, transactions())
    assert len(manifest.segments) > 10
    for first in range(0, 40, 3):
        for stop in (first + 1, first + 8, 40):
            seen = await offsets(store, manifest, part(first, min(stop, 40)))
            within = [offset for offset in seen if first <= offset < stop]
            assert within == [n for n in range(first, min(stop, 40)) if n not in HIDDEN | MARKERS], (
                first,
                stop,
            )
    everything = await offsets(store, manifest, part(0, 40), committed=False)
    assert everything == [n for n in range(40) if n not in MARKERS]


@in_loop
async def test_a_cut_decides_about_open_transactions() -> None:
    store = new_store()
    manifest = await archived(store, transactions())
    cut = CutPartition(
        partition=3,
        manifest=manifest.number,
        sha256="",
        log_start_offset=0,
        end_offset=40,
        last_stable_offset=30,
        open=(OpenTransaction(producer_id=9, producer_epoch=0, committed=True),),
        aborted_markers=(20,),
    )
    seen = await offsets(store, manifest, part(0, 40, cut))
    left_out = {n for n in range(40) if n not in seen} - MARKERS
    assert left_out == {4, 6, 12}, "4 was committed and 30 open, and the cut decides both otherwise"


@in_loop
async def test_segments_of_earlier_times_are_not_read() -> None:
    store = new_store()
    times = [5000, 5000, 1000, 1000, 1000, 1000, 9000, 9000]
    manifest = await archived(
        store, [batch(n, timestamp=at, size=900) for n, at in enumerate(times)], segment_bytes=1000
    )
    assert len(manifest.segments) == len(times)
    assert await offsets(store, manifest, part(0, 8), since_ms=4000) == [0, 1, 6, 7]


@in_loop
async def test_an_offset_that_the_archive_does_not_have_is_damage() -> None:
    store = new_store()
    manifest = await archived(store, [batch(n) for n in range(10)])
    with pytest.raises(ArchiveDamaged, match="has no offset 10"):
        await offsets(store, manifest, part(0, 11))


@in_loop
async def test_a_compacted_segment_may_end_without_records() -> None:
    store = new_store()
    found = writer(store, segment_bytes=1000)
    await found.open(0, compacted=True)
    await found.append([batch(n, size=300) for n in (0, 2, 5, 6, 11)])
    found.cover(20)
    manifest = await found.commit(0, 0)
    assert await offsets(store, manifest, part(0, 20)) == [0, 2, 5, 6, 11]
    assert await offsets(store, manifest, part(12, 20)) in ([], [11])


def test_an_undecided_transaction_ends_the_copies_for_readers_of_committed_records(tmp_path: Path) -> None:
    """Readers of committed records get it from brokers, who may know the marker."""
    pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
    from penstock.scan.blocking import run
    from tests.backup.clusters import store_in

    async def write() -> None:
        store, rng = store_in(tmp_path), SimRng(Random(1))
        await open_archive(store, rng, 0)
        found = PartitionWriter(
            store, chain(store, OWNER, TIER), SimRng(Random(2)), leader_epoch=4, segment_bytes=1000
        )
        assert await found.open(0, compacted=False) == 0
        await found.append(transactions()[:35])
        await found.commit(0, 0)

    run(write())
    missing = OWNER._replace(partition=99)
    found = run(copied(ArchivePlace(str(tmp_path)), [OWNER, missing]))
    assert list(found) == [OWNER]
    assert (found[OWNER].first, found[OWNER].decided_stop, found[OWNER].stop) == (0, 30, 35)
