"""Three nodes agree on metadata: elections, deaths, restarts, and what is committed everywhere."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from penstock.model.errors import ErrorCode
from penstock.net.client import Peer
from penstock.net.peer_errors import PeerLost
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from tests.broker.nodes import HOST, cluster, eventually, run
from tests.broker.topics import create


def test_three_nodes_elect_one_controller_and_register_with_it() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.stages.cluster.image: sorted(image.brokers) == [1, 2, 3])
                assert broker.stages.cluster.node.leader_id == controller.stages.config.node_id
                assert broker.stages.cluster.node.cluster_id == controller.stages.cluster.node.cluster_id
            assert [b.fenced for b in controller.stages.cluster.image.brokers.values()] == [False] * 3

    run(main())


@pytest.mark.parametrize("requested", [1, 2, 3])
def test_a_topic_made_through_any_node_is_known_everywhere(requested: int) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, requested, "orders") == ErrorCode.NONE
            assert "orders" in nodes[requested].stages.cluster.image.topics, (
                "the node that answered knows it first"
            )
            assert await create(nodes, requested, "orders") == ErrorCode.TOPIC_ALREADY_EXISTS
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.stages.cluster.image: "orders" in image.topics)

    run(main())


def test_the_controllers_death_elects_another_which_knows_everything() -> None:
    async def main() -> None:
        # It is not by this that they find out.
        async with cluster(3, config={"controller.quorum.fetch.timeout.ms": "60000"}) as nodes:
            first = await nodes.settled()
            assert await create(nodes, first.stages.config.node_id, "before") == ErrorCode.NONE
            await nodes.kill(first.stages.config.node_id)
            second = await nodes.settled()
            assert second is not first and "before" in second.stages.cluster.image.topics
            for node in nodes.brokers:
                assert await create(nodes, node, f"after-{node}") == ErrorCode.NONE

    run(main())


def test_a_restarted_node_catches_up() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            (follower, other) = [node for node in nodes.brokers if node != controller.stages.config.node_id]
            await nodes.kill(follower)
            assert await create(nodes, other, "missed") == ErrorCode.NONE
            await nodes.start(follower)
            assert "missed" in nodes[follower].stages.cluster.image.topics
            epoch = nodes[follower].stages.cluster.node.broker_epoch
            await eventually(
                lambda: (
                    {b.stages.cluster.image.brokers[follower].epoch for b in nodes.brokers.values()}
                    == {epoch}
                )
            )

    run(main())


def test_the_whole_cluster_restarts_with_its_committed_metadata() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "kept") == ErrorCode.NONE
            for node in list(nodes.brokers):
                await nodes.kill(node)
            await nodes.start()
            assert all("kept" in broker.stages.cluster.image.topics for broker in nodes.brokers.values())

    run(main())


def test_nothing_is_decided_without_a_majority() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            for node in [node for node in nodes.brokers if node != controller.stages.config.node_id]:
                await nodes.kill(node)
            topic = CreatableTopic(name="lost", num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=300)
            with pytest.raises((TimeoutError, PeerLost)):
                async with asyncio.timeout(1):
                    await nodes.call(controller.stages.config.node_id, CREATE_TOPICS, request)
            assert "lost" not in controller.stages.cluster.image.topics

    run(main())


def test_describe_quorum_through_any_node() -> None:
    async def main() -> None:
        async with cluster(2, observers=1) as nodes:
            controller = await nodes.settled()
            topic = DescribeQuorumRequestTopic(
                topic_name="__cluster_metadata", partitions=[DescribeQuorumRequestPartition()]
            )
            for node, internal in product(nodes.brokers, (False, True)):
                request = DescribeQuorumRequest(topics=[topic])
                answer = await nodes.call(node, DESCRIBE_QUORUM, request, internal=internal)
                (described,) = answer.topics[0].partitions
                assert described.leader_id == controller.stages.config.node_id
                assert [voter.replica_id for voter in described.current_voters] == [1, 2]
                assert [observer.replica_id for observer in described.observers] == [3]

    run(main())


@pytest.mark.parametrize(("software", "reported"), [("librdkafka", [1, 2, 3]), ("apache-kafka-java", [1, 2])])
def test_some_clients_see_a_fenced_broker_for_a_moment(software: str, reported: list[int]) -> None:
    """librdkafka lets partitions wait otherwise; Java's admin client would use it, and wait for a minute."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.settled()
            await nodes.kill(3)
            await eventually(lambda: nodes[1].stages.replication.replicas.fenced_brokers.is_listed(3))
            listener = nodes[1].stages.listening.listeners[0]
            client = Peer(
                asyncio.get_running_loop(), HOST, listener.port, client_id="t", rng=nodes[1].stages.world.rng
            )
            greeting = ApiVersionsRequest(client_software_name=software, client_software_version="1")
            await client.send(API_VERSIONS, greeting, 10)
            answer = await client.send(METADATA, MetadataRequest(topics=[]), 10)
            assert sorted(broker.node_id for broker in answer.brokers) == reported
            client.close()

    run(main())
