"""The listener for other nodes."""

from __future__ import annotations

from typing import Any

from penstock.model.errors import ErrorCode
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
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS
from penstock.wire.apis.end_quorum_epoch import END_QUORUM_EPOCH
from penstock.wire.apis.envelope import ENVELOPE
from penstock.wire.apis.fetch import FETCH
from penstock.wire.apis.fetch_snapshot import FETCH_SNAPSHOT
from penstock.wire.apis.join_group import JOIN_GROUP
from penstock.wire.apis.remove_raft_voter import REMOVE_RAFT_VOTER
from penstock.wire.apis.unregister_broker import UNREGISTER_BROKER
from penstock.wire.apis.update_features import UPDATE_FEATURES
from penstock.wire.apis.update_raft_voter import UPDATE_RAFT_VOTER
from penstock.wire.apis.vote import VOTE
from tests.broker.nodes import cluster, run

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


#: requests of admin clients to any broker, and to any controller directly (KIP-919)
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


def test_controllers_are_found_and_answer_on_the_internal_listener() -> None:
    async def main() -> None:
        async with cluster(2, observers=1) as nodes:
            controller = await nodes.settled()
            requested = DescribeClusterRequest(endpoint_type=2)
            found = await nodes.call(3, DESCRIBE_CLUSTER, requested, internal=True)
            assert (found.endpoint_type, found.controller_id) == (2, controller.stages.config.node_id)
            for node in nodes.brokers:
                # Clients of any broker see the active controller, too.
                described = await nodes.call(node, DESCRIBE_CLUSTER, DescribeClusterRequest(endpoint_type=1))
                assert described.controller_id == controller.stages.config.node_id
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
