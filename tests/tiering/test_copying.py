"""Turns of copying: what is copied, in which order, and what a failure leaves behind."""

from __future__ import annotations

import pytest

from penstock.archive.errors import ArchiveDamaged, WriterDeposed
from penstock.testing.simulation.object_store import StoreFaults
from penstock.tiering.copying import release
from penstock.tiering.errors import LogDiverged, LogIncomplete
from penstock.tiering.progress import Copied
from tests.archive.logs import OWNER, FixedClock, in_loop, new_store
from tests.storage.logs import NOW_MS, append_marker, idempotent, marker, stored
from tests.tiering.leaders import Replica, archive_in, contents, newest, verified


@in_loop
async def test_sealed_segments_are_copied_and_the_last_one_is_not() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(40)
    assert len(leader.log.segments) > 3

    copied = await leader.turn(archive_in(store, clock))

    manifest = await verified(store)
    assert manifest.next_offset == leader.sealed_end
    first_end = manifest.segments[0].next_offset
    assert copied == Copied(leader.sealed_end, leader.sealed_end, first_end, manifest.log_size)
    assert stored(leader.log).startswith(await contents(store, manifest))
    assert manifest.writer == "tier"


@in_loop
async def test_a_turn_without_news_writes_nothing() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(40)
    await leader.turn(archive_in(store, clock))
    before = dict(store.objects)

    await leader.turn(archive_in(store, clock))

    assert store.objects == before


@in_loop
async def test_records_above_the_last_stable_offset_are_not_copied() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(5)
    started = leader.log.end_offset
    guard = leader.log.producers.start_verification(7, 0, 0, False, NOW_MS)
    leader.log.append(idempotent(0, transactional=True), 0, guard=guard)
    leader.produce(40)

    await leader.turn(archive_in(store, clock))
    open_until = await newest(store)
    append_marker(leader.log, marker(False))
    leader.produce(1)
    await leader.turn(archive_in(store, clock))

    assert open_until is None or open_until.next_offset <= started
    assert (await verified(store)).next_offset == leader.sealed_end


@in_loop
async def test_uncommitted_records_are_not_copied() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(40)
    leader.log.high_watermark = leader.log.segments.first.base_offset

    await leader.turn(archive_in(store, clock))

    assert store.objects == {}


@in_loop
async def test_a_segment_larger_than_an_object_is_divided_and_gone_on_with_in_its_middle() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(40)
    archive = archive_in(store, clock, object_bytes=200)

    turns = 0
    while (copied := await leader.turn(archive)) is not None and copied.next_offset < leader.sealed_end:
        turns += 1

    manifest = await verified(store)
    assert turns > 0 and len(manifest.segments) > len(leader.log.segments)
    assert stored(leader.log).startswith(await contents(store, manifest))


@in_loop
async def test_a_batch_larger_than_one_read_is_copied() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new(segment_bytes=700_000)
    leader.produce(2, value=bytes(300_000))
    leader.log.roll()

    await leader.turn(archive_in(store, clock, object_bytes=1 << 20))

    assert (await verified(store)).next_offset == leader.sealed_end


@in_loop
async def test_the_next_leader_goes_on_although_its_segments_begin_elsewhere() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(30)
    await leader.turn(archive_in(store, clock))
    follower = Replica.new(index_interval_bytes=1)
    follower.log.reconfigure(Replica(leader.log).log.config)
    follower.follow(leader)
    follower.log.roll()
    follower.epoch = 1
    follower.produce(30)

    await follower.turn(archive_in(store, clock))

    manifest = await verified(store)
    assert manifest.leader_epoch == 1 and manifest.next_offset == follower.sealed_end
    assert stored(follower.log).startswith(await contents(store, manifest))


@in_loop
async def test_a_deposed_leader_does_not_write() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(30)
    successor = Replica.new()
    successor.follow(leader)
    successor.epoch = 1
    await successor.turn(archive_in(store, clock))
    before = await newest(store)
    leader.produce(30)

    with pytest.raises(WriterDeposed):
        await leader.turn(archive_in(store, clock))

    assert await newest(store) == before


@in_loop
async def test_a_leader_that_is_deposed_while_it_copies_names_nothing() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(60)

    async def depose(size: int) -> None:
        leader.leads = False

    assert await leader.turn(archive_in(store, clock, pace=depose)) is None
    assert await newest(store) is None and len(store.objects) == 1


@in_loop
async def test_segments_below_the_log_start_leave_the_manifest() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(60)
    copied = await leader.turn(archive_in(store, clock))
    assert copied is not None and copied.first_end is not None

    leader.log.start_at(copied.first_end)
    leader.copies = False
    await leader.turn(archive_in(store, clock))

    manifest = await verified(store)
    assert manifest.base_offset == manifest.log_start_offset == copied.first_end
    assert manifest.next_offset == copied.next_offset


@in_loop
async def test_an_archive_that_ends_below_the_log_start_begins_again_there() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(30)
    await leader.turn(archive_in(store, clock))
    leader.produce(60)
    leader.log.start_at(leader.log.end_offset - 30)
    leader.log.retention.apply(None)

    await leader.turn(archive_in(store, clock))

    manifest = await verified(store)
    assert manifest.base_offset == leader.log.segments.first.base_offset
    assert manifest.log_start_offset == leader.log.log_start_offset
    assert manifest.next_offset == leader.sealed_end


@in_loop
async def test_an_archive_that_was_emptied_is_filled_again() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(30)
    await leader.turn(archive_in(store, clock))
    store.objects.clear()

    await leader.turn(archive_in(store, clock))

    assert (await verified(store)).next_offset == leader.sealed_end


@in_loop
async def test_a_log_that_has_lost_archived_records_is_not_copied() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(60)
    unclean = Replica.new()
    unclean.produce(3)
    await leader.turn(archive_in(store, clock))
    before = dict(store.objects)
    unclean.epoch = 1

    with pytest.raises(LogDiverged, match="ends at offset"):
        await unclean.turn(archive_in(store, clock))
    unclean.produce(100)
    with pytest.raises(LogDiverged, match="leader epoch 0 at offset"):
        await unclean.turn(archive_in(store, clock))

    assert store.objects == before


@in_loop
async def test_a_log_with_a_hole_is_not_copied() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(60)
    leader.log.lose_segment(list(leader.log.segments)[1])

    with pytest.raises(LogIncomplete, match="lacks"):
        await leader.turn(archive_in(store, clock))

    assert await newest(store) is None


@in_loop
async def test_a_damaged_batch_is_not_copied() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(60)
    file = leader.log.segments.first.open_file()
    file.pwrite(bytes([file.pread(1, 70)[0] ^ 1]), 70)

    with pytest.raises(ArchiveDamaged, match="damaged batch"):
        await leader.turn(archive_in(store, clock))

    assert store.objects == {}


@in_loop
async def test_an_object_that_the_store_has_damaged_gets_no_name() -> None:
    store, clock, leader = new_store(faults=StoreFaults(wrong_puts=1.0)), FixedClock(), Replica.new()
    leader.produce(40)

    with pytest.raises(ArchiveDamaged, match="returns other bytes"):
        await leader.turn(archive_in(store, clock))

    store.faults = StoreFaults()
    assert await newest(store) is None
    await leader.turn(archive_in(store, clock, seed=2))
    assert (await verified(store)).next_offset == leader.sealed_end


@in_loop
async def test_objects_that_may_be_collected_by_now_get_no_name() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(40)

    async def a_day(size: int) -> None:
        clock.time_ms += 24 * 3600 * 1000

    with pytest.raises(TimeoutError, match="may be collected"):
        await leader.turn(archive_in(store, clock, pace=a_day))

    assert await newest(store) is None


@in_loop
async def test_a_released_archive_names_nothing_and_is_gone_on_with_behind_its_end() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.produce(30)
    archive = archive_in(store, clock)
    copied = await leader.turn(archive)
    assert copied is not None

    assert await release(archive, OWNER, 0)
    assert not await release(archive, OWNER, 0)
    manifest = await verified(store)
    assert manifest.segments == () and manifest.next_offset == copied.next_offset
    leader.produce(60)
    await leader.turn(archive)

    assert (await verified(store)).base_offset <= copied.next_offset
    assert (await verified(store)).next_offset == leader.sealed_end


@in_loop
async def test_a_deposed_leader_does_not_release() -> None:
    store, clock, leader = new_store(), FixedClock(), Replica.new()
    leader.epoch = 3
    leader.produce(30)
    archive = archive_in(store, clock)
    await leader.turn(archive)

    with pytest.raises(WriterDeposed):
        await release(archive, OWNER, 2)
