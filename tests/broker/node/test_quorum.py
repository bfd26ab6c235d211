"""Three nodes agree on metadata: elections, deaths, restarts, and what is committed everywhere."""

from __future__ import annotations

import asyncio
from errno import EIO
from functools import partial
from itertools import product
from typing import Any

import pytest

from penstock.broker.app.broker import Broker
from penstock.broker.app.server import system_world
from penstock.broker.node.metadata_home import check_metadata_home
from penstock.broker.replica.partitions import Partitions
from penstock.model.config import BrokerConfig
from penstock.model.errors import ErrorCode
from penstock.net.client import Peer
from penstock.net.peer_errors import PeerLost
from penstock.ports import Buffer
from penstock.records.record import Record, build_batch
from penstock.storage.directory import DirectoryRefused
from penstock.storage.log import AppendOrigin
from penstock.storage.memory import MemoryFiles
from penstock.wire.api import Api
from penstock.wire.apis.add_raft_voter import ADD_RAFT_VOTER
from penstock.wire.apis.allocate_producer_ids import ALLOCATE_PRODUCER_IDS
from penstock.wire.apis.alter_partition import ALTER_PARTITION
from penstock.wire.apis.api_versions import API_VERSIONS, ApiVersionsRequest
from penstock.wire.apis.begin_quorum_epoch import BEGIN_QUORUM_EPOCH
from penstock.wire.apis.broker_heartbeat import BROKER_HEARTBEAT
from penstock.wire.apis.broker_registration import BROKER_REGISTRATION
from penstock.wire.apis.controller_registration import CONTROLLER_REGISTRATION
from penstock.wire.apis.create_topics import CREATE_TOPICS, CreatableTopic, CreateTopicsRequest
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.describe_quorum import (
    DESCRIBE_QUORUM,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartition,
    DescribeQuorumRequestTopic,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS
from penstock.wire.apis.end_quorum_epoch import END_QUORUM_EPOCH
from penstock.wire.apis.envelope import ENVELOPE
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.fetch_snapshot import FETCH_SNAPSHOT
from penstock.wire.apis.join_group import JOIN_GROUP
from penstock.wire.apis.metadata import METADATA, MetadataRequest
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER
from penstock.wire.apis.update_features import UPDATE_FEATURES
from penstock.wire.apis.update_raft_voter import UPDATE_RAFT_VOTER
from penstock.wire.apis.vote import VOTE
from penstock.wire.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    encode_metadata_record,
)
from penstock.wire.schema import Struct
from tests.broker.nodes import HOST, Cluster, cluster, eventually, run
from tests.broker.topics import create


def test_three_nodes_elect_one_controller_and_register_with_it() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.image: sorted(image.brokers) == [1, 2, 3])
                assert broker.node.leader_id == controller.node_id
                assert broker.cluster_id == controller.cluster_id
            assert [b.fenced for b in controller.image.brokers.values()] == [False] * 3

    run(main())


@pytest.mark.parametrize("requested", [1, 2, 3])
def test_a_topic_made_through_any_node_is_known_everywhere(requested: int) -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, requested, "orders") == ErrorCode.NONE
            assert "orders" in nodes[requested].image.topics, "whoever was asked knows it first of all"
            assert await create(nodes, requested, "orders") == ErrorCode.TOPIC_ALREADY_EXISTS
            for broker in nodes.brokers.values():
                await eventually(lambda image=broker.image: "orders" in image.topics)

    run(main())


def test_the_controllers_death_elects_another_which_knows_everything() -> None:
    async def main() -> None:
        # It is not by this that they find out.
        async with cluster(3, config={"controller.quorum.fetch.timeout.ms": "60000"}) as nodes:
            first = await nodes.settled()
            assert await create(nodes, first.node_id, "before") == ErrorCode.NONE
            await nodes.kill(first.node_id)
            second = await nodes.settled()
            assert second is not first and "before" in second.image.topics
            for node in nodes.brokers:
                assert await create(nodes, node, f"after-{node}") == ErrorCode.NONE

    run(main())


def test_a_restarted_node_catches_up() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            (follower, other) = [node for node in nodes.brokers if node != controller.node_id]
            await nodes.kill(follower)
            assert await create(nodes, other, "missed") == ErrorCode.NONE
            await nodes.start(follower)
            assert "missed" in nodes[follower].image.topics
            epoch = nodes[follower].broker_epoch
            await eventually(
                lambda: {b.image.brokers[follower].epoch for b in nodes.brokers.values()} == {epoch}
            )

    run(main())


def test_the_whole_cluster_comes_back_with_what_was_committed() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            assert await create(nodes, 1, "kept") == ErrorCode.NONE
            for node in list(nodes.brokers):
                await nodes.kill(node)
            await nodes.start()
            assert all("kept" in broker.image.topics for broker in nodes.brokers.values())

    run(main())


def test_nothing_is_decided_without_a_majority() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            controller = await nodes.settled()
            for node in [node for node in nodes.brokers if node != controller.node_id]:
                await nodes.kill(node)
            topic = CreatableTopic(name="lost", num_partitions=1, replication_factor=1)
            request = CreateTopicsRequest(topics=[topic], timeout_ms=300)
            with pytest.raises((TimeoutError, PeerLost)):
                async with asyncio.timeout(1):
                    await nodes.call(controller.node_id, CREATE_TOPICS, request)
            assert "lost" not in controller.image.topics

    run(main())


#: what nodes say to each other, and in which versions
BETWEEN_NODES: dict[Api[Any, Any], tuple[int, int]] = {
    VOTE: (0, 2),
    BEGIN_QUORUM_EPOCH: (0, 1),
    END_QUORUM_EPOCH: (0, 1),
    ALTER_PARTITION: (2, 3),
    ENVELOPE: (0, 0),
    FETCH_SNAPSHOT: (0, 1),
    BROKER_REGISTRATION: (0, 4),
    BROKER_HEARTBEAT: (0, 2),
    ALLOCATE_PRODUCER_IDS: (0, 0),
    CONTROLLER_REGISTRATION: (0, 0),
    UPDATE_RAFT_VOTER: (0, 0),
}
#: what admin clients ask any broker, and any controller directly (KIP-919)
OF_BOTH: dict[Api[Any, Any], tuple[int, int]] = {
    FETCH: (4, 18),
    DESCRIBE_QUORUM: (0, 2),
    UNREGISTER_BROKER: (0, 0),
    ELECT_LEADERS: (0, 2),
    UPDATE_FEATURES: (0, 2),
    ADD_RAFT_VOTER: (0, 1),
    REMOVE_RAFT_VOTER: (0, 0),
}


def test_nodes_apis_are_on_the_internal_listener_only() -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            requested = ApiVersionsRequest(client_software_name="test", client_software_version="1")

            async def served(*, internal: bool) -> dict[int, tuple[int, int]]:
                answer = await nodes.call(1, API_VERSIONS, requested, internal=internal)
                return {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}

            outside, inside = await served(internal=False), await served(internal=True)
            assert not outside.keys() & {api.key for api in BETWEEN_NODES}
            for apis, found in ((BETWEEN_NODES | OF_BOTH, inside), (OF_BOTH, outside)):
                assert {api.name: found.get(api.key) for api in apis} == {
                    api.name: versions for api, versions in apis.items()
                }
            assert JOIN_GROUP.key not in inside

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
                assert described.leader_id == controller.node_id
                assert [voter.replica_id for voter in described.current_voters] == [1, 2]
                assert [observer.replica_id for observer in described.observers] == [3]

    run(main())


def test_controllers_are_found_and_answer_on_the_internal_listener() -> None:
    async def main() -> None:
        async with cluster(2, observers=1) as nodes:
            controller = await nodes.settled()
            requested = DescribeClusterRequest(endpoint_type=2)
            found = await nodes.call(3, DESCRIBE_CLUSTER, requested, internal=True)
            assert (found.endpoint_type, found.controller_id) == (2, controller.node_id)
            for node in nodes.brokers:
                # Clients of any broker see the active controller, too.
                described = await nodes.call(node, DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=1))
                assert described.controller_id == controller.node_id
            addresses = {each.broker_id: f"{each.host}:{each.port}" for each in found.brokers}
            quorum = nodes.settings[1]["controller.quorum.voters"].split(",")
            assert addresses == {int(voter[0]): voter[2:] for voter in quorum}
            refused = await nodes.call(3, DESCRIBE_CLUSTER, requested)
            assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            wanted = CreateTopicsRequest(
                topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)]
            )
            made = await nodes.call(3, CREATE_TOPICS, wanted, internal=True)
            assert made.topics[0].error_code == ErrorCode.NONE

    run(main())


@pytest.mark.parametrize(("software", "reported"), [("librdkafka", [1, 2, 3]), ("apache-kafka-java", [1, 2])])
def test_some_clients_see_a_fenced_broker_for_a_moment(software: str, reported: list[int]) -> None:
    """librdkafka lets partitions wait otherwise; Java's admin client would ask it, and wait for a minute."""

    async def main() -> None:
        async with cluster(3) as nodes:
            await nodes.settled()
            await nodes.kill(3)
            await eventually(lambda: nodes[1].replicas.fenced_brokers.is_listed(3))
            listener = nodes[1].listeners[0]
            client = Peer(asyncio.get_running_loop(), HOST, listener.port, client_id="t", rng=nodes[1].rng)
            greeting = ApiVersionsRequest(client_software_name=software, client_software_version="1")
            await client.send(API_VERSIONS, greeting, 10)
            answer = await client.send(METADATA, MetadataRequest(topics=[]), 10)
            assert sorted(broker.node_id for broker in answer.brokers) == reported
            client.close()

    run(main())


class _VotesCannotBeWritten(MemoryFiles):
    """A disk that fails when a vote is to be written down."""

    broken = False

    def write_atomic(self, path: str, data: Buffer) -> None:
        if self.broken and path.endswith("quorum-state"):
            raise OSError(EIO, "broken")
        super().write_atomic(path, data)


def test_a_node_that_cannot_write_its_vote_down_takes_no_more_part() -> None:
    async def main() -> None:
        nodes = Cluster([1, 2, 3])
        disk = nodes.disks[3] = _VotesCannotBeWritten()
        try:
            await nodes.start()
            leader = (await nodes.settled()).node_id
            disk.broken = True
            victim = nodes[3]
            if leader == 3:
                await nodes[3].node.quorum.resign(1)
            else:
                await nodes[leader].node.quorum.resign(1)
            await eventually(victim.node.is_over.is_set)
            assert victim.node.quorum.failure is not None
            assert not victim.node.controller.is_active
            await nodes.kill(3)
            await nodes.settled()
            assert await create(nodes, 1, "by-the-others") == ErrorCode.NONE
        finally:
            await nodes.close()

    run(main())


def test_a_log_from_before_there_was_a_quorum_is_read() -> None:
    """What a broker alone has written in epoch 0, without a leader's record and without a quorum state."""

    async def main() -> None:
        files = MemoryFiles()
        config = BrokerConfig(
            {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": "/data", "penstock.memory": "true"}
        )
        world = system_world(config)._replace(files=files)
        check = partial(check_metadata_home, config, files, world.clock, world.rng)
        old = Partitions(config, world._replace(files=files), check)
        metadata_log = old.open()
        records: list[Struct] = [
            FeatureLevelRecord(name="metadata.version", feature_level=20),
            RegisterBrokerRecord(broker_id=1, broker_epoch=1, fenced=False),
            TopicRecord(name="old", topic_id=bytes(15) + b"\x07"),
            PartitionRecord(partition_id=0, topic_id=bytes(15) + b"\x07", replicas=[1], isr=[1], leader=1),
        ]
        batch = build_batch(Record(n, 0, None, encode_metadata_record(r)) for n, r in enumerate(records))
        metadata_log.append(memoryview(bytearray(batch)), 0, origin=AppendOrigin.RAFT)
        await old.close(1)
        broker = await Broker.open(config, world)
        await broker.start()
        assert list(broker.image.topics) == ["old"] and broker.image.features == {"metadata.version": 20}
        assert broker.node.quorum.state.epoch == 1
        await broker.stop()

    run(main())


def test_a_directory_of_another_cluster_is_refused() -> None:
    async def main() -> None:
        async with cluster(1) as nodes:
            await nodes.stop()
            nodes.settings[1]["penstock.cluster.id"] = "AAAAAAAAAAAAAAAAAAAAAA"
            with pytest.raises(DirectoryRefused, match=r"penstock\.cluster\.id"):
                await nodes.start()
            del nodes.settings[1]["penstock.cluster.id"]
            await nodes.start()

    run(main())
