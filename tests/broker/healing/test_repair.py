"""Repairs of damaged ranges from other replicas."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.errors import ErrorCode
from penstock.records.record import iter_batches
from penstock.storage.segment_files import LOG
from tests.broker.healing.rot import damage, flip
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import (
    described,
    fetch,
    make_topic,
    produce,
    replica,
    stored,
    values_of,
)
from tests.broker.sealed_topics import VALUES, sealed_topic


@pytest.mark.parametrize("node", [1, 3], ids=["leader", "follower"])
def test_a_flipped_bit_is_found_never_served_and_healed(node: int) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            partition, scrubber = replica(nodes[node]), nodes[node].stages.healing.scrubber
            healthy = stored(partition)
            damage(nodes, node)
            await scrubber.scrub(partition)
            (found,) = partition.log.recovery.corruption
            assert nodes[node].stages.storage.metrics.corruption_found == 1
            assert (await fetch(nodes, node, found.first_offset)).error_code == ErrorCode.CORRUPT_MESSAGE
            assert values_of(await fetch(nodes, node)) == VALUES[: found.first_offset]
            assert values_of(await fetch(nodes, node, found.next_offset)) == VALUES[found.next_offset :]

            await scrubber.repair(partition)
            assert nodes[node].stages.storage.metrics.corruption_repaired == 1
            assert not partition.log.recovery.corruption
            assert stored(partition) == healthy
            assert values_of(await fetch(nodes, node)) == VALUES
            # No replica left the ISR for that.
            assert (described(nodes[1]).leader, sorted(described(nodes[1]).isr)) == (1, [1, 2, 3])

    run(main())


@pytest.mark.parametrize("field", ["base offset", "magic byte"])
@pytest.mark.parametrize("nth", [0, 2, 5, 6], ids=["first", "sealed", "last of the segment", "active"])
def test_a_field_that_no_checksum_covers_is_never_served_and_healed(nth: int, field: str) -> None:
    """The broker was stopped cleanly meanwhile, so that its start reads none of these batches."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[1]))
            segments = {s.base_offset: s.path(LOG) for s in replica(nodes[1]).log.segments}
            await nodes.stop(1)
            path = segments[0 if nth < 6 else 6]
            position, header = list(iter_batches(nodes.disks[1].read(path)))[nth % 6]
            if field == "base offset":
                nodes.disks[1].open(path).pwrite((header.base_offset + 200).to_bytes(8, "big"), position)
            else:
                nodes.disks[1].open(path).pwrite(bytes([header.magic ^ 16]), position + 16)
            await nodes.start(1)
            await eventually(lambda: sorted(described(nodes[2]).isr) == [1, 2, 3])
            partition = replica(nodes[1])
            await eventually(lambda: partition.log.high_watermark == 7)
            # The end of the log is read at the start, and the last batch was fetched again since.
            expected = ErrorCode.NONE if nth == 6 else ErrorCode.CORRUPT_MESSAGE
            assert (await fetch(nodes, 1, nth)).error_code == expected
            await nodes[1].stages.healing.scrubber.repair_all()
            assert stored(partition) == healthy
            for offset in range(7):
                assert values_of(await fetch(nodes, 1, offset))[0] == [*VALUES, b"last"][offset]

    run(main())


def test_a_damaged_batch_that_the_log_begins_within_is_healed() -> None:
    """DeleteRecords leaves the rest of a batch: other replicas refuse fetches below the log start."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"a", b"b", b"c")).error_code == ErrorCode.NONE
            await eventually(lambda: all(replica(nodes[node]).log.high_watermark == 3 for node in (1, 2, 3)))
            for node in (1, 2, 3):
                replica(nodes[node]).log.roll()
                replica(nodes[node]).log.delete_records(2)
            partition, scrubber = replica(nodes[1]), nodes[1].stages.healing.scrubber
            healthy = stored(partition)
            segment = partition.log.segments.first
            flip(nodes, 1, segment.path(LOG), segment.size - 1)
            await scrubber.scrub(partition)
            assert (await fetch(nodes, 1, 2)).error_code == ErrorCode.CORRUPT_MESSAGE
            await scrubber.repair(partition)
            assert stored(partition) == healthy
            assert not partition.log.recovery.corruption

    run(main())


def test_a_corrupt_minority_does_not_spread_by_repairs() -> None:
    """The leader is damaged at the same place and does not know yet: its bytes are refused."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[2]))
            damage(nodes, 1)
            damage(nodes, 3)
            partition = replica(nodes[3])
            await nodes[3].stages.healing.scrubber.scrub(partition)
            await nodes[3].stages.healing.scrubber.repair(partition)
            assert stored(partition) == healthy

    run(main())


def test_damage_that_no_replica_can_repair_stays_reported() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            for node in (1, 2, 3):
                damage(nodes, node)
                await nodes[node].stages.healing.scrubber.scrub(replica(nodes[node]))
            for node in (1, 2, 3):
                await nodes[node].stages.healing.scrubber.repair(replica(nodes[node]))
                (found,) = replica(nodes[node]).log.recovery.corruption
                answer = await fetch(nodes, node, found.first_offset)
                assert answer.error_code == ErrorCode.CORRUPT_MESSAGE

    run(main())


@pytest.mark.parametrize("number", [2, 5], ids=["in the middle", "last of its segment"])
def test_a_killed_leader_with_damage_is_repaired_from_a_complete_replica(number: int) -> None:
    """Nothing says of its segments that they are on the disk; it was alone in the ISR, another leads now."""

    async def main() -> None:
        nodes = Cluster([1], [2, 3], {"penstock.scrub.interval.ms": "20"})
        try:
            await nodes.start()
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[1]))
            await asyncio.gather(nodes.kill(2), nodes.kill(3))
            await eventually(lambda: list(described(nodes[1]).isr) == [1])
            segment = replica(nodes[1]).log.segments.first
            await nodes.kill(1)
            flip(nodes, 1, segment.path(LOG), segment.find(number) + 65)
            await nodes.start()
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            await eventually(lambda: all(replica(nodes[n]).log.end_offset == 7 for n in (1, 2, 3)))
            assert not replica(nodes[1]).log.recovery.corruption
            assert [stored(replica(nodes[node])) for node in (1, 2, 3)] == [healthy] * 3
        finally:
            await nodes.close()

    run(main())
