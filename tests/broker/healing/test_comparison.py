"""Bytes that differ between replicas though each checksum is right: found, judged, and replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from penstock import testing
from penstock.broker.app.broker import Broker
from penstock.broker.healing.comparison import compare_replica
from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode
from penstock.ports import Files
from penstock.records.batch import CRC_START, read_header
from penstock.records.checksum import crc32c
from penstock.records.record import iter_batches
from penstock.storage.segment_files import LOG
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, make_topic, produce, replica, stored
from tests.broker.sealed_topics import VALUES, sealed_topic
from tests.testing.cluster_clients import create
from tests.testing.cluster_clients import produce as produce_to

T = TypeVar("T")

_CRC = 17
#: a sealed batch: what it holds is `VALUES[_OFFSET]`
_OFFSET = 2


def forge(
    files: Files, partition: Partition, mark: bytes = b"V", offset: int = _OFFSET, *, checksum: bool = True
) -> None:
    """Change a letter of a sealed batch, and its checksum with it: the batch alone does not show it."""
    segment = partition.log.segments.first
    file = files.open(segment.path(LOG))
    data = file.pread(segment.size, 0)
    position = next(at for at, header in iter_batches(data) if header.base_offset == offset)
    batch = bytearray(data[position : position + read_header(data, position).size])
    batch[batch.index(b"value")] = mark[0]
    if checksum:
        batch[_CRC:CRC_START] = crc32c(batch[CRC_START:]).to_bytes(4, "big")
    file.pwrite(bytes(batch), position)


async def compare(nodes: Cluster, *which: int) -> None:
    for node in which or nodes.brokers:
        await compare_replica(nodes[node].stages.healing.repairs, replica(nodes[node]))


def differences(nodes: Cluster) -> dict[int, int]:
    return {node: broker.stages.storage.metrics.differences_found for node, broker in nodes.brokers.items()}


@pytest.mark.parametrize("victim", [1, 3], ids=["leader", "follower"])
def test_the_minority_is_replaced_even_if_it_leads(victim: int) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[2]))
            forge(nodes.disks[victim], replica(nodes[victim]))
            await nodes[victim].stages.healing.scrubber.scrub(replica(nodes[victim]))
            assert nodes[victim].stages.storage.metrics.corruption_found == 0

            await compare(nodes)
            assert [stored(replica(nodes[node])) for node in (1, 2, 3)] == [healthy] * 3
            assert nodes[victim].stages.storage.metrics.corruption_repaired == 1
            assert not replica(nodes[victim]).log.recovery.corruption
            assert sorted(described(nodes[1]).isr) == [1, 2, 3]
            before = differences(nodes)
            assert before[victim] == 1
            await compare(nodes)
            assert differences(nodes) == before

    run(main())


def test_a_minority_does_not_spread_without_a_majority() -> None:
    """Three replicas, three contents: all is reported, and stays as it is."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            forge(nodes.disks[1], replica(nodes[1]), b"A")
            forge(nodes.disks[2], replica(nodes[2]), b"B")
            before = [stored(replica(nodes[node])) for node in (1, 2, 3)]
            await compare(nodes)
            assert [stored(replica(nodes[node])) for node in (1, 2, 3)] == before
            assert differences(nodes) == {1: 1, 2: 1, 3: 1}

    run(main())


def test_a_corrupt_leader_is_not_trusted_while_a_replica_is_away() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            forge(nodes.disks[1], replica(nodes[1]))
            healthy = stored(replica(nodes[2]))
            await nodes.kill(3)
            await eventually(lambda: sorted(described(nodes[2]).isr) == [1, 2])
            await compare(nodes)
            assert stored(replica(nodes[2])) == healthy
            assert differences(nodes) == {1: 1, 2: 1}

            await nodes.start(3)
            await eventually(lambda: 3 in described(nodes[1]).isr)
            await eventually(lambda: replica(nodes[3]).log.high_watermark == 7)
            await compare(nodes, 1)
            assert stored(replica(nodes[1])) == healthy

    run(main())


def test_of_two_replicas_the_follower_takes_the_records_of_the_leader() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            for value in VALUES:
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            for node in (1, 2):
                replica(nodes[node]).log.roll()
            assert (await produce(nodes, 1, b"last")).error_code == ErrorCode.NONE
            await eventually(lambda: replica(nodes[2]).log.high_watermark == 7)
            forge(nodes.disks[2], replica(nodes[2]))
            await compare(nodes, 1)
            assert differences(nodes) == {1: 1, 2: 0, 3: 0}
            await compare(nodes, 2)
            assert stored(replica(nodes[2])) == stored(replica(nodes[1]))

    run(main())


def test_compacted_topics_are_not_compared() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await sealed_topic(nodes)
            for node in (1, 2, 3):
                log = replica(nodes[node]).log
                log.segments.first.mark_compacted()
            forge(nodes.disks[3], replica(nodes[3]))
            await compare(nodes)
            assert differences(nodes) == {1: 0, 2: 0, 3: 0}

    run(main())


def test_verdicts_from_before_a_restart_are_found_again() -> None:
    """In a cluster of its own: a round comes by itself, soon after the start and not a day later."""
    with testing.cluster(brokers=3) as running:
        create(running, "t", **{"internal.segment.bytes": "200"})
        for value in VALUES:
            produce_to(running, "t", value)

        def look(node: int, at: Callable[[Broker, Partition], T]) -> T:
            broker = running._nodes[node].broker
            return running._nodes[node].call(lambda: at(broker, replica(broker, "t"))).result()

        victim = running.ids[0]
        healthy = look(victim, lambda broker, partition: stored(partition))
        look(victim, lambda broker, partition: forge(broker.stages.world.files, partition, offset=0))
        assert look(victim, lambda broker, partition: stored(partition)) != healthy
        running.restart(victim)
        running.wait_for_isr("t")
        running.advance(65)
        running.wait_until(lambda: look(victim, lambda broker, partition: stored(partition)) == healthy)
        assert look(victim, lambda broker, partition: broker.stages.storage.metrics.differences_found) == 1


def test_a_leader_with_a_wrong_checksum_is_outvoted() -> None:
    """Of two replicas the leader would be right, and its follower would give up the only copy that is."""

    async def main() -> None:
        async with cluster(2) as nodes:
            await sealed_topic(nodes)
            healthy = stored(replica(nodes[2]))
            forge(nodes.disks[1], replica(nodes[1]), checksum=False)

            await compare(nodes, 2)
            assert not replica(nodes[2]).log.recovery.corruption

            await nodes[1].stages.healing.scrubber.scrub(replica(nodes[1]))
            await nodes[1].stages.healing.scrubber.repair(replica(nodes[1]))
            assert [stored(replica(nodes[node])) for node in (1, 2)] == [healthy] * 2

    run(main())
