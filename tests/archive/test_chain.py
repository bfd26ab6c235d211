"""Two writers of one chain: a deposed leader never overwrites what another one wrote."""

from __future__ import annotations

import msgspec
import pytest

from penstock.archive.chain import ManifestChain, newest_manifest
from penstock.archive.documents import Manifest, encode
from penstock.archive.errors import ArchiveDamaged, WriterDeposed
from penstock.archive.manifests import check_follows, trimmed
from penstock.archive.names import BACKUP, TIER
from penstock.testing.simulation.object_store import StoreFaults
from tests.archive.logs import OWNER, FixedClock, chain, in_loop, new_store


async def advance(store_chain: ManifestChain, start: int, epoch: int) -> Manifest:
    newest = store_chain.newest or store_chain.first(0, epoch, compacted=False)
    return await store_chain.advance(trimmed(newest, start), epoch)


@in_loop
async def test_manifests_form_a_chain() -> None:
    store = new_store()
    writer = chain(store)
    assert await writer.load() is None
    first = await advance(writer, 1, 2)
    first_digest = writer.digest
    second = await advance(writer, 2, 2)
    check_follows(second, first, first_digest, "it")
    assert (first.number, second.number, second.log_start_offset) == (0, 1, 2)
    other = chain(store)
    assert await other.load() == second and other.digest == writer.digest
    assert await chain(store, name=TIER).load() is None


@in_loop
async def test_of_two_writers_one_fails() -> None:
    store = new_store()
    old, new = chain(store), chain(store)
    await old.load()
    await new.load()
    await advance(new, 1, 5)
    with pytest.raises(WriterDeposed, match="another writer has written"):
        await advance(old, 2, 4)
    await old.load()
    with pytest.raises(WriterDeposed, match="has leader epoch 5 in its manifest, this is 4"):
        await advance(old, 2, 4)
    found = await newest_manifest(store, OWNER, BACKUP)
    assert found is not None and found[0].log_start_offset == 1


@in_loop
async def test_a_writer_that_slept_over_a_collection_is_deposed() -> None:
    """The collector has deleted the number that the sleeper creates: the put alone would succeed."""
    store = new_store()
    sleeper, other = chain(store), chain(store)
    await advance(other, 1, 1)
    await sleeper.load()
    for start in range(2, 6):
        await advance(other, start, 1)
    for number in range(4):
        store.lose(OWNER.manifest(BACKUP, number))
    with pytest.raises(WriterDeposed, match="manifest 4 of another writer"):
        await advance(sleeper, 9, 1)
    found = await newest_manifest(store, OWNER, BACKUP)
    assert found is not None and found[0].number == 4


@in_loop
async def test_a_late_listing_does_not_hide_the_newest_manifest() -> None:
    clock = FixedClock()
    store = new_store(clock=clock, faults=StoreFaults(listing_lag_ms=10**9))
    writer = chain(store)
    for start in range(1, 5):
        await advance(writer, start, 1)
    assert [each.name for each in await store.listing("")] == []
    found = await newest_manifest(store, OWNER, BACKUP)
    assert found is not None and found[0].number == 3


@in_loop
async def test_a_put_whose_answer_was_lost_is_ours() -> None:
    store = new_store(faults=StoreFaults(lost_answer=1.0))
    writer = chain(store)
    assert (await advance(writer, 1, 1)).number == 0
    assert (await advance(writer, 2, 1)).number == 1


@in_loop
async def test_a_manifest_of_another_partition_is_refused() -> None:
    store = new_store()
    other = OWNER._replace(partition=9)
    await advance(chain(store, other), 1, 1)
    store.objects[OWNER.manifest(BACKUP, 0)] = store.objects[other.manifest(BACKUP, 0)]
    with pytest.raises(ArchiveDamaged, match=r"is that of .orders.-9"):
        await newest_manifest(store, OWNER, BACKUP)


@in_loop
async def test_a_manifest_with_an_invalid_topic_id_is_damage() -> None:
    """A user with the right to write to the store made `penstock backup` end with a traceback."""
    store = new_store()
    manifest = await advance(chain(store), 1, 1)
    forged = msgspec.structs.replace(manifest, topic_id="../../orders")
    name = OWNER.manifest(BACKUP, 0)
    store.objects[name] = (encode(forged), store.objects[name][1])
    with pytest.raises(ArchiveDamaged, match=r"with topic id '\.\./\.\./orders'"):
        await newest_manifest(store, OWNER, BACKUP)
