"""Plans of moves from the responses of brokers, without I/O: for commands, and for the console.

The console must not import the controller's decisions, so `penstock console` hands `plan_for_console` in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from penstock.metadata.image import ClusterImage
from penstock.metadata.rebalance import plan_rebalance
from penstock.model.ids import TopicPartition
from penstock.wire.apis.describe_cluster import DescribeClusterBroker
from penstock.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
)
from penstock.wire.apis.metadata import MetadataResponse
from penstock.wire.metadata_records import BrokerEndpoint, PartitionRecord, RegisterBrokerRecord, TopicRecord

__all__ = ["image_of", "moves_of", "plan_for_console"]


def image_of(
    brokers: Iterable[DescribeClusterBroker],
    metadata: MetadataResponse,
    moving: Mapping[TopicPartition, OngoingPartitionReassignment],
) -> ClusterImage:
    """Brokers and replicas, as far as plans need them."""
    image = ClusterImage()
    for broker in brokers:
        endpoint = BrokerEndpoint(name="PLAINTEXT", host=broker.host, port=broker.port)
        image.apply(
            RegisterBrokerRecord(
                broker_id=broker.broker_id,
                end_points=[endpoint],
                rack=broker.rack,
                fenced=broker.is_fenced,
                machine=broker.machine,
            ),
            0,
        )
    for topic in metadata.topics:
        image.apply(TopicRecord(name=topic.name or "", topic_id=topic.topic_id), 0)
        for partition in topic.partitions:
            ongoing = moving.get(TopicPartition(topic.name or "", partition.partition_index))
            image.apply(
                PartitionRecord(
                    partition_id=partition.partition_index,
                    topic_id=topic.topic_id,
                    replicas=partition.replica_nodes,
                    isr=partition.isr_nodes,
                    leader=partition.leader_id,
                    adding_replicas=ongoing.adding_replicas if ongoing else [],
                    removing_replicas=ongoing.removing_replicas if ongoing else [],
                ),
                0,
            )
    return image


def moves_of(
    response: ListPartitionReassignmentsResponse,
) -> dict[TopicPartition, OngoingPartitionReassignment]:
    """The moves in progress, by partition."""
    return {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }


def plan_for_console(
    brokers: Iterable[DescribeClusterBroker],
    metadata: MetadataResponse,
    moving: ListPartitionReassignmentsResponse,
    loads: Mapping[tuple[str, int], int],
    leaving: Collection[int],
    excluded: Collection[int],
) -> list[tuple[str, int, list[int]]]:
    """(topic, partition, replicas) of few moves that balance the brokers; `leaving` brokers end up empty."""
    image = image_of(brokers, metadata, moves_of(moving))
    by_partition = {TopicPartition(*key): float(load) for key, load in loads.items()}
    moves = plan_rebalance(image, by_partition, leaving=leaving, excluded=excluded)
    return [(move.partition.topic, move.partition.partition, move.replicas) for move in moves]
