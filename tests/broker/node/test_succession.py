"""Metadata just after a leader's process has died names no dead leader."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.observability.health import ClusterFacts, Level
from penstock.observability.health_merge import merged
from penstock.observability.health_observed import Silence, observed_reports
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from penstock.wire.apis.metadata import (
    METADATA,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponsePartition,
)
from tests.broker.nodes import Cluster, cluster, eventually, run
from tests.broker.topics import create


async def reported(nodes: Cluster, node: int) -> MetadataResponsePartition:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="topic")])
    response = await nodes.call(node, METADATA, request)
    return response.topics[0].partitions[0]


async def led(nodes: Cluster) -> int:
    """A topic of three replicas, which every node knows; its leader."""
    controller = await nodes.settled()
    assert await create(nodes, controller.stages.config.node_id, "topic", factor=3) == ErrorCode.NONE
    await eventually(
        lambda: all("topic" in broker.stages.cluster.image.topics for broker in nodes.brokers.values())
    )
    return controller.stages.cluster.image.topics["topic"].partitions[0].leader


def test_a_request_while_a_leader_dies_names_its_successor() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            leader = await led(nodes)
            await nodes.kill(leader)
            partition = await reported(nodes, next(iter(nodes.brokers)))
            assert partition.error_code == ErrorCode.NONE
            assert partition.leader_id in nodes.brokers
            assert partition.leader_epoch > 0

    run(main())


def test_a_leader_that_cannot_have_a_successor_yet_is_not_named() -> None:
    """Without a majority there is no election: better no leader than a dead one."""

    async def main() -> None:
        async with cluster(3) as nodes:
            leader = await led(nodes)
            left, *others = [node for node in nodes.brokers if node != leader]
            # The leader last: while there is a majority, it might get a successor.
            for node in (*others, leader):
                await nodes.kill(node)
            partition = await reported(nodes, left)
            assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
            # A page that shows a partition without a leader must show the reason beside it.
            request = DescribeLogDirsRequest(topics=[], include_health=True)
            answer = await nodes.call(left, DESCRIBE_LOG_DIRS, request)
            silent = {node: Silence("no answer") for node in (*others, leader)}
            health = merged(observed_reports({left: answer, **silent}, ClusterFacts(has_controller=True), {}))
            assert health.level == Level.UNHEALTHY
            assert f"1 partition is led by broker {leader}, which does not respond" in health.reasons

    run(main())


def test_a_wrong_suspicion_ends_with_the_next_answer() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            leader = await led(nodes)
            requested = next(node for node in nodes.brokers if node != leader)
            nodes[requested].stages.cluster.node.peers.probe(leader)
            assert leader in nodes[requested].stages.cluster.node.peers.missing()
            assert (await reported(nodes, requested)).leader_id == leader

    run(main())
