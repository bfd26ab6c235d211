"""Local segments go only with a proof of that moment; each way in which an archive can be wrong."""

from __future__ import annotations

import msgspec
import pytest

from penstock.archive.documents import encode
from penstock.archive.errors import ArchiveDamaged, ArchiveError
from penstock.archive.manifests import spill
from penstock.archive.names import TIER
from penstock.storage.epochs import LeaderEpochs
from penstock.tiering.errors import ArchiveContradicts, ArchiveFallsShort
from penstock.tiering.proof import KeptLog, Prover, same_epochs
from tests.archive.logs import OWNER, in_loop, new_store
from tests.storage.compacted import InlineWorkers
from tests.tiering.kept import Kept
from tests.tiering.leaders import Replica, verified


@in_loop
async def test_a_whole_archive_proves_all_sealed_segments() -> None:
    kept = await Kept.filled()
    proven = await kept.prove()
    assert proven.end_offset == kept.replica.sealed_end
    assert proven.manifest == await verified(kept.store)
    kept.replica.log.advance_local_start(proven.end_offset)
    kept.replica.produce(20)
    await kept.copy()
    assert (await kept.prove()).end_offset == kept.replica.sealed_end


@in_loop
async def test_segments_in_pages_are_proven() -> None:
    kept = await Kept.filled()
    manifest = await verified(kept.store)
    entries = tuple(
        msgspec.structs.replace(manifest.segments[0], base_offset=-n - 1, next_offset=-n)
        for n in range(290, 0, -1)
    )
    spilled = spill(msgspec.structs.replace(manifest, segments=(*entries, *manifest.segments)), bytes(8))
    assert spilled is not None
    page = spilled.manifest.pages[0]
    await kept.store.put_new(OWNER.object(page.name), spilled.data)
    assert (await kept.page(manifest, page)) == entries[: page.segments]


@in_loop
async def test_records_without_a_copy_are_not_proven() -> None:
    kept = await Kept.filled()
    archived = kept.replica.sealed_end
    kept.replica.produce(20)
    assert kept.replica.sealed_end > archived
    # A follower may have sealed its segments elsewhere: what the archive has is proven.
    assert (await kept.prove()).end_offset == archived
    kept.replica.log.advance_local_start(archived)
    with pytest.raises(ArchiveFallsShort):
        await kept.prove()


@in_loop
async def test_an_archive_without_a_manifest_proves_nothing() -> None:
    kept = Kept(new_store(), Replica.new())
    kept.replica.produce(20)
    with pytest.raises(ArchiveFallsShort):
        await kept.prove()


@in_loop
async def test_an_object_that_is_gone_or_shorter_proves_nothing() -> None:
    kept = await Kept.filled()
    entry = (await verified(kept.store)).segments[1]
    name = OWNER.object(entry.name)
    data, modified = kept.store.objects[name]
    kept.store.objects[name] = (data[:-1], modified)
    with pytest.raises(ArchiveError):
        await kept.prove()
    del kept.store.objects[name]
    with pytest.raises(ArchiveDamaged, match="missing"):
        await kept.prove()


@in_loop
async def test_an_object_of_another_segment_proves_nothing() -> None:
    kept = await Kept.filled()
    first, second, *_ = (await verified(kept.store)).segments
    objects = kept.store.objects
    objects[OWNER.object(first.name)] = objects[OWNER.object(second.name)]
    with pytest.raises(ArchiveDamaged):
        await kept.prove()


@in_loop
async def test_other_leader_epochs_suspend_the_deletion() -> None:
    """The records of a deposed leader may have the same offsets."""
    kept = await Kept.filled()
    kept.replica.log.leader_epochs.restore([0, 0, 2, 5, 3, kept.replica.log.leader_epochs.starts[-1]])
    with pytest.raises(ArchiveContradicts, match="other leader epochs"):
        await kept.prove()


@in_loop
async def test_an_archive_that_was_rolled_back_suspends_the_deletion() -> None:
    kept = await Kept.filled()
    earlier = dict(kept.store.objects)
    await kept.prove()
    kept.replica.produce(20)
    await kept.copy()
    await kept.prove()

    kept.store.objects = earlier

    with pytest.raises(ArchiveContradicts, match="rolled back"):
        await kept.prove(10)


@in_loop
async def test_copied_segments_are_missed_before_any_proof() -> None:
    kept = await Kept.filled()
    earlier, log = dict(kept.store.objects), kept.replica.log
    kept.replica.produce(20)
    copied = await kept.copy()
    kept.store.objects = earlier
    known = KeptLog(0, 0, log.leader_epochs, copied.next_offset)

    with pytest.raises(ArchiveContradicts, match="rolled back"):
        await kept.prover.newest(kept.archive.chain(OWNER), known)

    await kept.copy()
    assert await kept.prover.newest(kept.archive.chain(OWNER), known)


@in_loop
async def test_an_archive_that_was_emptied_suspends_the_deletion() -> None:
    kept = await Kept.filled()
    await kept.free()
    kept.store.objects.clear()
    with pytest.raises(ArchiveContradicts, match="rolled back or emptied"):
        await kept.prove()
    kept.prover = Prover(InlineWorkers())
    with pytest.raises(ArchiveContradicts, match="no manifest"):
        await kept.prove()


@in_loop
async def test_an_archive_that_ends_below_the_local_start_is_found_after_a_restart() -> None:
    kept = await Kept.filled()
    earlier = dict(kept.store.objects)
    kept.replica.produce(20)
    await kept.copy()
    await kept.free()
    kept.store.objects, kept.prover = earlier, Prover(InlineWorkers())
    kept.replica.produce(20)
    with pytest.raises(ArchiveContradicts, match="was rolled back"):
        await kept.prove()


@in_loop
async def test_a_manifest_of_another_archive_proves_nothing() -> None:
    kept = await Kept.filled()
    manifest = await verified(kept.store)
    other = encode(msgspec.structs.replace(manifest, archive="another", number=manifest.number + 1))
    await kept.store.put_new(OWNER.manifest(TIER, manifest.number + 1), other)
    with pytest.raises(ArchiveDamaged, match="of archive another"):
        await kept.prove()


def epochs(*pairs: int) -> LeaderEpochs:
    found = LeaderEpochs()
    found.restore(pairs)
    return found


def test_histories_are_compared_where_both_are_known() -> None:
    archived = epochs(0, 0, 2, 10, 5, 20)
    assert same_epochs(archived, epochs(0, 0, 2, 10, 5, 20, 6, 40), 0, 30)
    assert same_epochs(archived, epochs(2, 10, 5, 20), 0, 30), "a log whose earlier epochs are lost"
    assert same_epochs(archived, epochs(2, 12, 5, 20), 12, 30)
    assert same_epochs(archived, epochs(5, 25), 0, 30)
    assert not same_epochs(archived, epochs(0, 0, 2, 11, 5, 20), 0, 30)
    assert not same_epochs(archived, epochs(0, 0, 2, 10, 4, 20), 0, 30)
    assert not same_epochs(archived, epochs(0, 0, 2, 10, 3, 15, 5, 20), 0, 30)
    assert not same_epochs(archived, epochs(), 0, 30)
    assert not same_epochs(archived, epochs(5, 30), 0, 30)
