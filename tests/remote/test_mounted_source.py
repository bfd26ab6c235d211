"""Transactions that a cut decides otherwise than the source did, as readers of a mounted backup see them."""

from __future__ import annotations

from penstock.archive.cuts import CutPartition
from penstock.records.batch import read_header
from penstock.records.control import parse_end_transaction
from penstock.remote.mounted_source import MountedSource
from tests.archive.logs import batch, in_loop, marker, new_store, writer
from tests.remote.readers import Reader


@in_loop
async def test_commit_markers_of_transactions_that_are_not_whole_are_aborts() -> None:
    """The records are segments before the marker; a transaction of the same producer before it stays."""
    store, batches = new_store(), []
    batches.append(batch(0, producer_id=7, transactional=True, size=400, epoch=3))
    batches.append(marker(1, 7, committed=True))
    batches.append(batch(2, producer_id=7, sequence=1, transactional=True, size=400, epoch=3))
    batches += [batch(n, size=400, epoch=4) for n in range(3, 30)]
    batches.append(marker(30, 7, committed=True))
    batches += [batch(n, size=400, epoch=4) for n in range(31, 40)]
    archived = writer(store, segment_bytes=3000)
    await archived.open(0, compacted=False)
    await archived.append(batches)
    manifest = await archived.commit(0, 0)
    assert len(manifest.segments) > 3
    for turned in ((), (30,)):
        cut = CutPartition(
            partition=3,
            manifest=manifest.number,
            sha256="",
            log_start_offset=0,
            end_offset=40,
            last_stable_offset=40,
            aborted_markers=turned,
        )
        reader = Reader(
            store,
            manifest,
            source=lambda s, read, workers, _, cut=cut: MountedSource(s, read, workers, cut, 0),  # type: ignore[misc]
        )
        for offset, each in enumerate(batches):
            found = await reader.read(offset, 1)
            assert read_header(found).leader_epoch == 0
            listed = reader.partition.aborted_transactions(offset, offset + 1)
            assert listed == ([(7, 2)] if turned and 2 <= offset <= 30 else []), (turned, offset)
            if offset in turned:
                end = parse_end_transaction(found)
                assert end is not None and not end.committed
            else:
                assert found[16:] == each[16:]  # all but the leader epoch
