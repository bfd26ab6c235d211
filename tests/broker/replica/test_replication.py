"""Replication between real brokers: what is acknowledged is on enough replicas, whoever leads next."""

from __future__ import annotations

import asyncio
from dataclasses import replace

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
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.wire.metadata_records import PartitionChangeRecord
from tests.broker.nodes import cluster, eventually, run
from tests.broker.replication import (
    TOPIC,
    described,
    fetch,
    hosts,
    latest,
    make_topic,
    produce,
    replica,
    stop_fetching,
    stored,
    values_of,
)


def test_acks_all_answers_when_every_replica_in_sync_has_it() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            answer = await produce(nodes, 1, b"a", b"b")
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, 0)
            assert [replica(nodes[n]).log.end_offset for n in (1, 2, 3)] == [2, 2, 2]
            assert values_of(await fetch(nodes, 1)) == [b"a", b"b"]
            assert stored(replica(nodes[2])) == stored(replica(nodes[3])) == stored(replica(nodes[1]))

    run(main())


def test_a_kill_of_the_leader_loses_nothing_that_was_acknowledged() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for value in (b"a", b"b", b"c"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            await nodes.kill(1)
            await eventually(lambda: described(nodes[2]).leader in (2, 3))
            leader = described(nodes[2]).leader
            await eventually(lambda: replica(nodes[leader]).leading)
            assert (await produce(nodes, leader, b"d")).error_code == ErrorCode.NONE
            assert values_of(await fetch(nodes, leader)) == [b"a", b"b", b"c", b"d"]

    run(main())


def test_a_leader_that_comes_back_cuts_what_nobody_acknowledged_and_joins_again() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"kept")).error_code == ErrorCode.NONE
            await asyncio.gather(stop_fetching(nodes[2]), stop_fetching(nodes[3]))
            assert (await produce(nodes, 1, b"lost", acks=1)).error_code == ErrorCode.NONE
            await nodes.kill(1)
            await eventually(lambda: described(nodes[2]).leader in (2, 3))
            leader = described(nodes[2]).leader
            await eventually(lambda: replica(nodes[leader]).leading)
            assert (await produce(nodes, leader, b"new")).error_code == ErrorCode.NONE
            await nodes.start(1)
            await eventually(lambda: sorted(described(nodes[leader]).isr) == [1, 2, 3])
            assert stored(replica(nodes[1])) == stored(replica(nodes[leader]))
            assert values_of(await fetch(nodes, leader)) == [b"kept", b"new"]

    run(main())


def test_acks_1_waits_for_no_replica_and_shows_nothing_before_its_commit() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2)
            await stop_fetching(nodes[2])
            assert (await produce(nodes, 1, b"a", acks=1)).error_code == ErrorCode.NONE
            answer = await fetch(nodes, 1)
            assert (answer.high_watermark, answer.records) == (0, b"")

    run(main())


def test_acks_all_that_takes_too_long_says_so() -> None:
    async def main() -> None:
        async with cluster(2) as nodes:
            await make_topic(nodes, 1, 2)
            await stop_fetching(nodes[2])
            answer = await produce(nodes, 1, b"a", timeout_ms=50)
            assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(main())


def test_a_follower_that_is_gone_leaves_the_isr_and_acks_all_needs_min_isr() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3, min_isr=2)
            await nodes.kill(3)
            await eventually(lambda: list(described(nodes[1]).isr) == [1, 2])
            assert (await produce(nodes, 1, b"a")).error_code == ErrorCode.NONE
            assert nodes[1].replicas.under_replicated == 1

    run(main())


def test_a_follower_that_lags_leaves_the_isr_and_comes_back_when_it_has_caught_up() -> None:
    async def main() -> None:
        async with cluster(3, config={"replica.fetch.wait.max.ms": "100"}) as nodes:
            await make_topic(nodes, 1, 2, 3)
            leadership = replica(nodes[1]).leadership
            assert leadership is not None
            followers = leadership.state.followers
            await stop_fetching(nodes[3])
            requested = asyncio.create_task(produce(nodes, 1, b"a"))
            await eventually(lambda: followers[2].end_offset == 1)
            assert not requested.done()
            # Only now: the one that has all may be as slow as its machine until then.
            nodes[1].config.replica_lag_time_max_ms = leadership.state._max_lag_ms = 20
            assert (await requested).error_code == ErrorCode.NONE
            assert nodes[1].metrics.isr_shrinks == 1
            # The leader hears it from the controller before it reads it in the log.
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2])
            await nodes.kill(3)
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            await eventually(lambda: nodes[1].metrics.isr_expands == 1)

    run(main())


def test_acks_all_is_refused_before_the_append_below_min_isr() -> None:
    async def main() -> None:
        settings = {"replica.lag.time.max.ms": "300", "replica.fetch.wait.max.ms": "100"}
        async with cluster(3, config=settings) as nodes:
            await make_topic(nodes, 1, 2, min_isr=2)
            await stop_fetching(nodes[2])
            assert (await produce(nodes, 1, b"a", acks=1)).error_code == ErrorCode.NONE
            leadership = replica(nodes[1]).leadership
            assert leadership is not None
            await eventually(lambda: set(leadership.state.isr) == {1})
            answer = await produce(nodes, 1, b"b")
            assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
            assert replica(nodes[1]).log.end_offset == 1
            # Strict min ISR (KIP-966): what one replica alone has is not committed.
            assert replica(nodes[1]).log.high_watermark == 0

    run(main())


def test_what_waits_for_min_isr_is_committed_when_that_is_lowered() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            await nodes.kill(2)
            await eventually(lambda: described(nodes[1]).isr == [1])
            assert (await produce(nodes, 1, b"a", acks=1)).error_code == ErrorCode.NONE
            leading = replica(nodes[1])
            assert leading.log.high_watermark == 0
            leading.reconfigure(replace(leading.log.config, min_insync_replicas=1))
            assert values_of(await fetch(nodes, 1)) == [b"a"]

    run(main())


def test_a_broker_without_a_replica_says_who_leads() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            for node in (2, 3):
                assert (await produce(nodes, node, b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await fetch(nodes, 3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(main())


def test_what_a_group_sync_has_not_confirmed_is_not_acknowledged_by_followers() -> None:
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
            assert len(nodes[1].replicas.sessions) == 1

    run(main())


def test_list_offsets_latest_on_a_new_leader_waits_for_its_epochs_start() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"a")).error_code == ErrorCode.NONE
            assert await latest(nodes, 1) == 1
            leadership = replica(nodes[1]).leadership
            assert leadership is not None
            leadership.state.epoch_start_offset = 2
            assert await latest(nodes, 1) == ErrorCode.OFFSET_NOT_AVAILABLE
            assert (await produce(nodes, 1, b"b")).error_code == ErrorCode.NONE
            assert await latest(nodes, 1) == 2

    run(main())


def test_consumers_read_from_the_follower_in_their_rack_what_it_knows_to_be_committed() -> None:
    """KIP-392."""

    async def main() -> None:
        settings = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
        async with cluster(3, config=settings) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for value in (b"a", b"b"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            answer = await fetch(nodes, 1, rack="rack-2")
            assert (answer.preferred_read_replica, answer.records) == (2, b"")
            assert (await fetch(nodes, 1, rack="rack-1")).preferred_read_replica == -1
            await eventually(lambda: replica(nodes[2]).log.high_watermark == 2)
            assert values_of(await fetch(nodes, 2, rack="rack-2")) == [b"a", b"b"]

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


def test_a_refusal_says_who_leads_and_where() -> None:
    """KIP-951."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            refused = await produce(nodes, 3, b"a")
            assert refused.current_leader is not None
            assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (1, 0)
            answer = await fetch(nodes, 3)
            assert answer.current_leader is not None
            assert answer.current_leader.leader_id == 1

    run(main())


def test_records_are_deleted_on_all_replicas_before_the_answer() -> None:
    async def main() -> None:
        async with cluster(3, config={"replica.fetch.wait.max.ms": "20000"}) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for value in (b"a", b"b", b"c"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            wanted = DeleteRecordsPartition(partition_index=0, offset=2)
            request = DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=TOPIC, partitions=[wanted])], timeout_ms=19_000
            )
            ((answer,),) = [t.partitions for t in (await nodes.call(1, DELETE_RECORDS, request)).topics]
            assert (answer.error_code, answer.low_watermark) == (ErrorCode.NONE, 2)
            assert [replica(nodes[n]).log.log_start_offset for n in (1, 2, 3)] == [2, 2, 2]

    run(main())


def test_followers_begin_where_retention_has_their_leader_begin() -> None:
    """However long the partition is quiet, and whatever their own clocks say."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"a", b"b")).error_code == ErrorCode.NONE
            leader = replica(nodes[1])
            await eventually(lambda: replica(nodes[3]).log.high_watermark == 2)
            assert leader.expire(nodes[1].clock.now_ms() + leader.log.config.retention_ms + 1)
            await eventually(lambda: {replica(nodes[n]).log.log_start_offset for n in (1, 2, 3)} == {2})

    run(main())


def test_who_waits_for_a_deletion_hears_that_another_leads_and_may_be_gone_by_then() -> None:
    """No error: one that nobody looks at is reported when it is collected."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            assert (await produce(nodes, 1, b"a")).error_code == ErrorCode.NONE
            await stop_fetching(nodes[2])
            leadership = replica(nodes[1]).leadership
            assert leadership is not None
            replica(nodes[1]).log.delete_records(1)
            waiting = leadership.deleted()
            leadership.resign()
            assert await waiting is False

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


def test_what_a_disk_has_damaged_is_fetched_again_from_the_leader() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for value in (b"a", b"b", b"c"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            damaged = replica(nodes[3])
            await damaged.flusher.flush()
            await nodes[3].partitions.checkpoints.write_all()
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


def damage(partition: Partition) -> None:
    """Have it known that the record at offset 1 is damaged."""
    segment = partition.log.segments.active
    start, end = segment.find(1), segment.find(2)
    note_damage(partition.log, segment, Corruption(segment.path(LOG), start, end - start, 1, 2))


def test_a_replica_whose_leader_has_heard_of_it_cuts_nothing_though_it_is_out_of_sync() -> None:
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


def test_a_disk_that_cannot_cut_what_is_damaged_keeps_no_other_replica_from_its_role(
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
            topic = nodes[2].image.topics[TOPIC]
            for partition in topic.partitions.values():
                partition.leader_epoch += 1
                partition.isr = [1]
            changes = [PartitionChangeRecord(topic_id=topic.id, partition_id=index) for index in (0, 1)]
            await nodes[2].replicas.apply(changes)
            assert [replica(nodes[2], index=index).leader_epoch for index in (0, 1)] == [1, 1]

    run(main())
