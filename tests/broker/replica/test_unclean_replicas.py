"""Replicas that may lack committed records: reported by heartbeats, and never elected for what they had."""

from __future__ import annotations

from penstock.broker.app.broker import Broker
from penstock.broker.replica.unclean_replicas import UncleanReplicas
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import TOPIC as NAME
from tests.broker.replication import described, led_by, make_topic, produce, replica

TOPIC = TopicId(bytes(15) + b"\1")


def test_a_report_settles_its_own_replicas_and_not_later_ones() -> None:
    woken: list[int] = []
    unclean = UncleanReplicas(lambda: woken.append(1))
    unclean.mark(TOPIC, 0, "t", "a hole")
    unclean.mark(TOPIC, 1, "t", "a hole")
    report = unclean.report()
    assert [(t.topic_id, t.partitions) for t in report.topics] == [(TOPIC, [0, 1])]
    unclean.mark(TOPIC, 1, "t", "another hole")

    unclean.settle(report)

    assert unclean.reasons == {(TOPIC, 1): "another hole"}
    assert len(woken) == 3
    assert not UncleanReplicas(lambda: None).report()


def test_a_replica_that_was_removed_from_the_disk_does_not_lead_and_is_fetched_again() -> None:
    """All stop cleanly, the last one loses the topic's folder and is the first to be back."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3, min_isr=2)
            for value in (b"one", b"two"):
                assert (await produce(nodes, 1, value)).error_code == ErrorCode.NONE
            await nodes.stop_in_turn(3, 2, 1)
            nodes.disks[1].rmtree(f"/data/topics/{NAME}")
            await nodes.start()

            controller = await nodes.settled()
            await eventually(lambda: sorted(described(controller).isr) == [1, 2, 3])
            assert described(controller).leader_epoch > 0
            assert all(replica(nodes[node]).log.end_offset >= 2 for node in (1, 2, 3))

    run(main())


def test_a_marked_replica_of_a_live_broker_resigns_leadership_and_rejoins_the_isr() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3, min_isr=2)
            controller = await nodes.settled()
            before = described(controller).leader_epoch
            leader: Broker = nodes[1]
            leader.stages.storage.partitions.mark_unclean(replica(leader).topic_id, 0, "a hole")
            await eventually(lambda: described(controller).leader_epoch > before)
            assert described(controller).leader != 1
            await eventually(lambda: sorted(described(controller).isr) == [1, 2, 3])
            assert not leader.stages.storage.partitions.unclean.reasons

    run(main())


async def _write_and_fence(nodes: Cluster) -> None:
    """Two records on 2 and 3, of which 2 leads; then both are stopped, and 3 has lost its copy."""
    await nodes.start()
    await make_topic(nodes, 2, 3, min_isr=1)
    for value in (b"one", b"two"):
        assert (await produce(nodes, 2, value)).error_code == ErrorCode.NONE
    await eventually(lambda: replica(nodes[3]).log.high_watermark == 2)
    await nodes.stop(2)
    await eventually(lambda: described(nodes[1]).leader == 3)
    await nodes.kill(3)
    nodes.disks[3].rmtree(f"/data/topics/{NAME}")


def _entries(broker: Broker) -> list[tuple[str, list[int]]]:
    (directory,) = broker.stages.storage.partitions.directories
    return [(entry.topic, entry.partitions) for entry in directory.quarantine.entries()]


def test_a_follower_sets_its_log_aside_before_committed_records_are_cut() -> None:
    """An operator has elected a leader without records that a broker which is back later has."""

    async def main() -> None:
        nodes = Cluster([1], [2, 3])
        try:
            await _write_and_fence(nodes)
            await nodes.start(3)
            request = ElectLeadersRequest(
                election_type=1, topic_partitions=[TopicPartitions(topic=NAME, partitions=[0])]
            )
            await nodes.call(3, ELECT_LEADERS, request)
            await led_by(nodes, 3)
            assert (await produce(nodes, 3, b"new")).error_code == ErrorCode.NONE
            await nodes.start(2)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [2, 3])
            assert replica(nodes[2]).log.end_offset == replica(nodes[3]).log.end_offset == 1
            assert _entries(nodes[2]) == [(NAME, [0])]
            assert _entries(nodes[3]) == []
        finally:
            await nodes.close()

    run(main())


def test_a_topic_with_unclean_elections_has_its_log_cut_in_place() -> None:
    async def main() -> None:
        nodes = Cluster([1], [2, 3], config={"unclean.leader.election.enable": "true"})
        try:
            await _write_and_fence(nodes)
            await nodes.start(3)
            await led_by(nodes, 3)
            await nodes.start(2)
            await eventually(lambda: sorted(described(nodes[1]).isr) == [2, 3])
            assert replica(nodes[2]).log.end_offset == 0
            assert _entries(nodes[2]) == []
        finally:
            await nodes.close()

    run(main())


def test_an_isr_member_is_reported_before_its_log_goes_to_the_quarantine() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            await make_topic(nodes, 1, 2, 3)
            controller = await nodes.settled()
            assert not nodes[3].stages.replication.replicas.quarantine.set_aside(replica(nodes[3]), 1, 0)
            await eventually(lambda: not nodes[3].stages.storage.partitions.unclean.reasons)
            await eventually(lambda: sorted(described(controller).isr) == [1, 2, 3])
            assert _entries(nodes[3]) == []

    run(main())
