"""ElectLeaders, reassignments and UpdateFeatures."""

from __future__ import annotations

from penstock.model.errors import ErrorCode
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from penstock.wire.apis.update_features import UPDATE_FEATURES, FeatureUpdate, UpdateFeaturesRequest
from tests.broker.nodes import Cluster, cluster, run
from tests.broker.topics import create


async def follower(nodes: Cluster) -> int:
    controller = await nodes.settled()
    return next(node for node in nodes.brokers if node != controller.stages.config.node_id)


def test_elections_reassignments_and_features_through_a_follower() -> None:
    async def main() -> None:
        async with cluster(3) as nodes:
            node = await follower(nodes)
            assert await create(nodes, node, "topic") == ErrorCode.NONE
            elect = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic="topic", partitions=[0])])
            ((result,),) = [
                topic.partition_result
                for topic in (await nodes.call(node, ELECT_LEADERS, elect)).replica_election_results
            ]
            assert result.error_code == ErrorCode.ELECTION_NOT_NEEDED
            reassign = AlterPartitionReassignmentsRequest(
                topics=[
                    ReassignableTopic(
                        name="topic", partitions=[ReassignablePartition(partition_index=0, replicas=[9])]
                    )
                ]
            )
            ((moved,),) = [
                topic.partitions
                for topic in (await nodes.call(node, ALTER_PARTITION_REASSIGNMENTS, reassign)).responses
            ]
            assert moved.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
            update = FeatureUpdate(feature="group.version", max_version_level=9)
            answer = await nodes.call(node, UPDATE_FEATURES, UpdateFeaturesRequest(feature_updates=[update]))
            assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION

    run(main())
