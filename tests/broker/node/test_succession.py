"""Metadata just after a leader's process has died names no dead leader."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
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
    assert await create(nodes, controller.node_id, "topic", factor=3) == ErrorCode.NONE
    await eventually(lambda: all("topic" in broker.image.topics for broker in nodes.brokers.values()))
    return controller.image.topics["topic"].partitions[0].leader


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

    run(main())


def test_a_wrong_suspicion_ends_with_the_next_answer() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            leader = await led(nodes)
            requested = next(node for node in nodes.brokers if node != leader)
            nodes[requested].node.peers.probe(leader)
            assert leader in nodes[requested].node.peers.missing()
            assert (await reported(nodes, requested)).leader_id == leader

    run(main())
