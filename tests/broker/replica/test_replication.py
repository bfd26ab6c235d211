"""Replication between real brokers: acknowledged records survive a change of the leader."""

from __future__ import annotations

import asyncio

from penstock.model.errors import ErrorCode
from penstock.wire.apis.delete_records import (
    DELETE_RECORDS,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from tests.broker.nodes import cluster, eventually, run
from tests.broker.replication import (
    TOPIC,
    described,
    fetch,
    led_by,
    make_topic,
    produce,
    replica,
    stop_fetching,
    values_of,
)


def test_a_kill_of_the_leader_loses_nothing_that_was_acknowledged() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            for value in (b"a", b"b", b"c"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            await nodes.kill(1)
            await eventually(lambda: described(nodes[2]).leader in (2, 3))
            leader = described(nodes[2]).leader
            await led_by(nodes, leader)
            assert (await produce(nodes, leader, b"d")).error_code == ErrorCode.NONE
            assert values_of(await fetch(nodes, leader)) == [b"a", b"b", b"c", b"d"]

    run(main())


def test_a_follower_that_is_gone_leaves_the_isr_and_acks_all_needs_min_isr() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3, min_isr=2)
            await nodes.kill(3)
            await eventually(lambda: list(described(nodes[1]).isr) == [1, 2])
            assert (await produce(nodes, 1, b"a")).error_code == ErrorCode.NONE
            assert nodes[1].stages.replication.replicas.under_replicated == 1

    run(main())


def test_a_planned_restart_is_distinguished_from_a_loss_of_in_sync_replicas() -> None:
    """An alert must not fire whenever a broker is restarted."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            metrics = nodes[1].stages.storage.metrics
            await nodes.stop(3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2])
            await eventually(lambda: metrics.isr_shrinks == 1)
            assert metrics.isr_shrinks_unplanned == 0
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            assert metrics.isr_shrinks_unplanned == 0
            await nodes.kill(3)
            await eventually(lambda: metrics.isr_shrinks == 2)
            assert metrics.isr_shrinks_unplanned == 1

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
            nodes[1].stages.config.replica_lag_time_max_ms = leadership.state._max_lag_ms = 20
            assert (await requested).error_code == ErrorCode.NONE
            assert (
                nodes[1].stages.storage.metrics.isr_shrinks
                == nodes[1].stages.storage.metrics.isr_shrinks_unplanned
                == 1
            )
            # The leader hears it from the controller before it reads it in the log.
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2])
            await nodes.kill(3)
            await nodes.start(3)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [1, 2, 3])
            await eventually(lambda: nodes[1].stages.storage.metrics.isr_expands == 1)

    run(main())


def test_a_broker_without_a_replica_names_the_leader() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2)
            for node in (2, 3):
                assert (await produce(nodes, node, b"a")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await fetch(nodes, 3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(main())


def test_consumers_read_up_to_the_known_high_watermark_from_the_follower_in_their_rack() -> None:
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


def test_a_refusal_names_the_leader_and_its_address() -> None:
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


def test_a_wait_for_deleted_records_ends_when_another_broker_leads() -> None:
    """No error: an exception that is not retrieved is reported when it is collected."""

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
