"""Which machine of a simulated cluster leads or follows which partition, according to the newest image.

Directed faults and disasters use the roles to choose their targets. Brokers never see them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.replica.partition import Partition
from penstock.metadata.image import ClusterImage, PartitionImage
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.node import Node

__all__ = ["ClusterRoles", "StateNotReached", "cluster_roles", "newest_image", "replica_on"]


class StateNotReached(Exception):
    """The cluster was never in the state that a directed fault or a disaster needs."""


class ClusterRoles(NamedTuple):
    """The machines that host one partition, and the controller."""

    partition: TopicPartition
    controller: Node
    leader: Node
    #: the other replicas, in the order in which they would be elected
    followers: list[Node]

    @property
    def bystanders(self) -> list[Node]:
        """Followers that are not the controller."""
        return [node for node in self.followers if node is not self.controller]


def newest_image(nodes: Sequence[Node]) -> ClusterImage:
    """The image with the highest offset among the running brokers."""
    images = [node.broker.stages.cluster.image for node in nodes if node.broker is not None]
    return max(images, key=lambda image: image.offset, default=ClusterImage())


def cluster_roles(nodes: Sequence[Node]) -> list[ClusterRoles]:
    """The roles of all partitions, if every machine is up and every replica in sync; else an empty list."""
    by_id = {node.id: node for node in nodes if node.broker is not None}
    controller = next((node for node in by_id.values() if _is_controller(node)), None)
    if controller is None or len(by_id) < len(nodes):
        return []
    return [
        ClusterRoles(
            TopicPartition(topic.name, partition.index),
            controller,
            by_id[partition.leader],
            [by_id[node] for node in partition.replicas if node != partition.leader],
        )
        for topic in newest_image(nodes).topics.values()
        for partition in topic.partitions.values()
        if _is_whole(partition)
    ]


def replica_on(node: Node, name: TopicPartition) -> Partition | None:
    """The replica of a partition on `node`; None if `node` is down or has none."""
    for partition in () if node.broker is None else node.broker.stages.storage.partitions:
        if (partition.topic, partition.index) == (name.topic, name.partition):
            return partition
    return None


def _is_controller(node: Node) -> bool:
    return node.broker is not None and node.broker.stages.cluster.node.controller.is_active


def _is_whole(partition: PartitionImage) -> bool:
    return partition.leader >= 0 and set(partition.isr) == set(partition.replicas)
