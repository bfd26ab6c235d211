"""A follower fetches: from new partitions, after damage, from a late start, within its throttle."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.broker.nodes import cluster, eventually, run
from tests.broker.replication import (
    TOPIC,
    described,
    make_topic,
    produce,
    replica,
    stored,
)


def test_records_without_a_group_flush_are_not_acknowledged_by_followers() -> None:
    """penstock.flush=group: acks=all means that the disks of all replicas in sync have it."""

    async def main() -> None:
        async with cluster(3, config={"penstock.flush": "group"}) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"a")).error_code == ErrorCode.NONE
            assert [replica(nodes[n]).log.recovery_point for n in (1, 2, 3)] == [1, 1, 1]

    run(main())


def test_a_new_partition_does_not_wait_for_a_fetch_of_others_that_finds_nothing() -> None:
    async def main() -> None:
        async with cluster(2, config={"replica.fetch.wait.max.ms": "20000"}) as nodes:
            await make_topic(nodes, 1, 2, name="idle")
            assert (await produce(nodes, 1, b"a", name="idle")).error_code == ErrorCode.NONE
            for number in range(3):
                name = f"new-{number}"
                await make_topic(nodes, 1, 2, name=name)
                answer = await produce(nodes, 1, b"a", name=name, timeout_ms=19_000)
                assert answer.error_code == ErrorCode.NONE
            # In the same session all along: nothing was lost, nothing started over.
            assert len(nodes[1].stages.replication.replicas.sessions) == 1

    run(main())


def test_followers_begin_where_retention_has_their_leader_begin() -> None:
    """However long the partition is quiet, and whatever their own clocks say."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"a", b"b")).error_code == ErrorCode.NONE
            leader = replica(nodes[1])
            await eventually(lambda: replica(nodes[3]).log.high_watermark == 2)
            assert leader.expire(nodes[1].stages.world.clock.now_ms() + leader.log.config.retention_ms + 1)
            await eventually(lambda: {replica(nodes[n]).log.log_start_offset for n in (1, 2, 3)} == {2})

    run(main())


def test_a_replica_that_starts_late_begins_where_the_leaders_log_begins() -> None:
    """OFFSET_OUT_OF_RANGE: what would continue the follower's log is gone, so it starts over."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            for value in (b"a", b"b", b"c"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            replica(nodes[1]).log.delete_records(2)
            moved = ReassignablePartition(partition_index=0, replicas=[1, 2, 3])
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=5000, topics=[ReassignableTopic(name=TOPIC, partitions=[moved])]
            )
            await nodes.call(1, ALTER_PARTITION_REASSIGNMENTS, request)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            log = replica(nodes[3]).log
            assert (log.log_start_offset, log.end_offset) == (2, 3)

    run(main())


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        ({"leader.replication.throttled.rate": "100000"}, {"leader.replication.throttled.replicas": "*"}),
        ({"follower.replication.throttled.rate": "100000"}, {"follower.replication.throttled.replicas": "*"}),
        ({"penstock.balance": "replicas", "penstock.balance.bytes.per.second": "100000"}, {}),
    ],
    ids=["leader", "follower", "balance"],
)
def test_catching_up_is_throttled_and_being_in_sync_is_not(
    rates: dict[str, str], named: dict[str, str]
) -> None:
    async def main() -> None:
        async with cluster(3, config={**rates, "replica.fetch.max.bytes": "20000"}) as nodes:
            await make_topic(nodes, 1, 2, configs=named)
            for _ in range(20):
                assert (await produce(nodes, 1, bytes(10_000))).error_code == ErrorCode.NONE
            began = asyncio.get_running_loop().time()
            moved = ReassignablePartition(partition_index=0, replicas=[1, 2, 3])
            request = AlterPartitionReassignmentsRequest(
                timeout_ms=5000, topics=[ReassignableTopic(name=TOPIC, partitions=[moved])]
            )
            await nodes.call(1, ALTER_PARTITION_REASSIGNMENTS, request)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            # 200 kB at 100 kB a second, of which the first second's worth is free.
            assert asyncio.get_running_loop().time() - began > 0.8
            assert stored(replica(nodes[3])) == stored(replica(nodes[1]))

    run(main())


def test_damaged_records_are_fetched_again_from_the_leader() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for value in (b"a", b"b", b"c"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            damaged = replica(nodes[3])
            await damaged.sync.flusher.flush()
            await nodes[3].stages.storage.partitions.checkpoints.write_all()
            await nodes.kill(3)
            path = f"{damaged.log.path}/{0:020}.log"
            content = bytearray(nodes.disks[3].read(path))
            content[len(content) // 2] ^= 1
            nodes.disks[3].write_atomic(path, bytes(content))
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            assert stored(replica(nodes[3])) == stored(replica(nodes[1]))
            assert not replica(nodes[3]).log.recovery.corruption

    run(main())
