"""Roles of replicas after changes of the metadata."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.replica.partition import Partition
from penstock.model.errors import ErrorCode, StorageError
from penstock.storage.log import Log
from penstock.storage.recovery_report import Corruption
from penstock.storage.scrub import note_damage
from penstock.storage.segment_files import LOG
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.metadata_records import PartitionChangeRecord
from tests.broker.nodes import cluster, eventually, run
from tests.broker.replication import (
    TOPIC,
    described,
    fetch,
    hosts,
    led_by,
    make_topic,
    produce,
    replica,
    stop_fetching,
    stored,
    values_of,
)


def test_a_leader_that_returns_truncates_unacknowledged_records_and_joins_the_isr() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"kept")).error_code == ErrorCode.NONE
            await asyncio.gather(stop_fetching(nodes[2]), stop_fetching(nodes[3]))
            assert (await produce(nodes, 1, b"lost", acks=1)).error_code == ErrorCode.NONE
            await nodes.kill(1)
            await eventually(lambda: described(nodes[2]).leader in (2, 3))
            leader = described(nodes[2]).leader
            await led_by(nodes, leader)
            assert (await produce(nodes, leader, b"new")).error_code == ErrorCode.NONE
            await nodes.start(1)
            await eventually(lambda: sorted(described(nodes[leader]).isr) == [1, 2, 3])
            assert stored(replica(nodes[1])) == stored(replica(nodes[leader]))
            assert values_of(await fetch(nodes, leader)) == [b"kept", b"new"]

    run(main())


def test_a_reassigned_replica_is_filled_and_the_one_it_replaces_is_removed() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            for value in (b"a", b"b"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            moved = ReassignablePartition(partition_index=0, replicas=[1, 3])
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=5000, topics=[ReassignableTopic(name=TOPIC, partitions=[moved])]
            )
            response = await nodes.call(2, ALTER_PARTITION_REASSIGNMENTS, request)
            assert response.error_code == ErrorCode.NONE
            await eventually(lambda: list(described(nodes[1]).replicas) == [1, 3])
            await eventually(lambda: not hosts(nodes[2]))
            await eventually(lambda: replica(nodes[1]).leader_epoch == described(nodes[1]).leader_epoch)
            assert (await produce(nodes, 1, b"c")).error_code == ErrorCode.NONE
            assert stored(replica(nodes[3])) == stored(replica(nodes[1]))
            assert (await fetch(nodes, 2)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(main())


def damage(partition: Partition) -> None:
    """Have it known that the record at offset 1 is damaged."""
    segment = partition.log.segments.active
    start, end = segment.find(1), segment.find(2)
    note_damage(partition.log, segment, Corruption(segment.path(LOG), start, end - start, 1, 2))


def test_a_replica_that_its_leader_knows_truncates_nothing_though_it_is_out_of_sync() -> None:
    """The leader may be about to have it back in the ISR, for what it had when it last fetched."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for value in (b"a", b"b", b"c"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            damaged, leadership = replica(nodes[3]), replica(nodes[1]).leadership
            assert leadership is not None
            await eventually(lambda: leadership.state.followers[3].end_offset == 3)
            damage(damaged)
            shrink = leadership.state._propose(leadership.state.isr - {3})
            leadership._propose(leadership, shrink)
            await eventually(lambda: described(nodes[3]).isr == [1, 2])
            await eventually(lambda: sorted(described(nodes[3]).isr) == [1, 2, 3])
            assert damaged.log.end_offset == 3

    run(main())


def test_a_disk_that_cannot_truncate_a_damaged_log_keeps_no_other_replica_from_its_role(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(log: Log, offset: int) -> None:
        raise StorageError("broken")

    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2, partitions=2)
            for value in (b"a", b"b"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            await eventually(lambda: replica(nodes[2]).log.end_offset == 2)
            damage(replica(nodes[2]))
            monkeypatch.setattr(Log, "truncate_to", fail)
            topic = nodes[2].stages.cluster.image.topics[TOPIC]
            for partition in topic.partitions.values():
                partition.leader_epoch += 1
                partition.isr = [1]
            changes = [PartitionChangeRecord(topic_id=topic.id, partition_id=index) for index in (0, 1)]
            await nodes[2].stages.replication.replicas.apply(changes)
            assert [replica(nodes[2], index=index).leader_epoch for index in (0, 1)] == [1, 1]

    run(main())
