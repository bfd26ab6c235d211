"""Groups on a cluster: found through any broker, and their offsets survive the loss of their coordinator."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tests.broker.groups import GROUP, commit, commit_when_it_can, committed, coordinator, offsets
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.replication import described, hosts, make_topic, replica


def test_offsets_survive_the_loss_of_their_coordinator() -> None:
    async def main() -> None:
        async with cluster(3, config={"offsets.topic.num.partitions": "3"}) as nodes:
            await make_topic(nodes, 1, 2, 3)
            found = await coordinator(nodes, 1)
            assert found.error_code == ErrorCode.NONE
            await eventually(
                lambda: all(
                    "__consumer_offsets" in b.stages.cluster.image.topics for b in nodes.brokers.values()
                )
            )
            assert [(await coordinator(nodes, node)).node_id for node in (2, 3)] == [found.node_id] * 2
            other = next(node for node in nodes.brokers if node != found.node_id)
            assert await commit(nodes, other, 7) == ErrorCode.NOT_COORDINATOR
            await commit_when_it_can(nodes, found.node_id, 42)
            await nodes.kill(found.node_id)
            left = next(iter(nodes.brokers.values()))
            home = left.stages.cluster.image.topics["__consumer_offsets"].partitions[
                left.stages.coordinators.groups.runtime.topic.partition_for(GROUP)
            ]
            await eventually(lambda: home.leader in nodes.brokers)
            successor = home.leader
            await eventually(lambda: home.index in nodes[successor].stages.coordinators.groups.runtime)
            assert (await coordinator(nodes, left.stages.config.node_id)).node_id == successor
            assert await committed(nodes, successor) == 42

    run(main())


def test_groups_first_used_while_a_broker_is_down_have_all_their_replicas() -> None:
    async def main() -> None:
        async with cluster(3, config={"offsets.topic.num.partitions": "1"}) as nodes:
            await nodes.kill(3)
            await eventually(
                lambda: all(b.stages.cluster.image.brokers[3].fenced for b in nodes.brokers.values())
            )
            found = await coordinator(nodes, 1)
            assert found.node_id in (1, 2)
            partition = described(nodes[found.node_id], "__consumer_offsets")
            assert (sorted(partition.replicas), sorted(partition.isr)) == ([1, 2, 3], [1, 2])
            await make_topic(nodes, 1, 2)
            await commit_when_it_can(nodes, found.node_id, 42)
            await nodes.start(3)
            await eventually(lambda: sorted(partition.isr) == [1, 2, 3])
            assert replica(nodes[3], "__consumer_offsets").log.end_offset == 1, (
                "it has what was committed meanwhile"
            )

    run(main())


def test_groups_wait_for_a_cluster_that_is_still_starting() -> None:
    """As in Kafka: with too few brokers registered there is no coordinator yet; clients retry."""

    async def main() -> None:
        nodes = Cluster([1, 2, 3], config={"offsets.topic.num.partitions": "1"})
        try:
            await nodes.start(1, 2)
            found = await coordinator(nodes, 1)
            assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
            assert found.error_message is not None and "only 2 broker(s)" in found.error_message
            await nodes.start(3)
            assert (await coordinator(nodes, 1)).error_code == ErrorCode.NONE
            assert sorted(described(nodes[1], "__consumer_offsets").replicas) == [1, 2, 3]
        finally:
            await nodes.close()

    run(main())


def test_a_group_has_one_coordinator_when_its_partition_has_moved_away() -> None:
    """A broker that has lost leadership and replica must not answer from memory."""

    async def main() -> None:
        config = {"offsets.topic.num.partitions": "1", "offsets.topic.replication.factor": "1"}
        async with cluster(1, 1, config) as nodes:
            await make_topic(nodes, 1, 2)
            old = (await coordinator(nodes, 1)).node_id
            new = 3 - old
            await commit_when_it_can(nodes, old, 42)
            moved = ReassignablePartition(partition_index=0, replicas=[new])
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name="__consumer_offsets", partitions=[moved])]
            )
            await nodes.call(1, ALTER_PARTITION_REASSIGNMENTS, request)
            await eventually(lambda: 0 in nodes[new].stages.coordinators.groups.runtime)
            await eventually(lambda: not hosts(nodes[old], "__consumer_offsets"))
            assert await committed(nodes, new) == 42
            await commit_when_it_can(nodes, new, 43)
            assert (await offsets(nodes, old)).error_code == ErrorCode.NOT_COORDINATOR
            assert 0 not in nodes[old].stages.coordinators.groups.runtime
            assert await committed(nodes, new) == 43

    run(main())
