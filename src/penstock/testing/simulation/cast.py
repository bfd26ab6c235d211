"""Who is who in a simulated cluster: which machine leads what, as the newest image has it.

Faults that are to meet a certain race have to know; nothing here is told to brokers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.broker.replica.partition import Partition
from penstock.metadata.image import ClusterImage, PartitionImage
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.node import Node

__all__ = ["Cast", "casts", "newest_image", "replica_on"]


class Cast(NamedTuple):
    """The machines that have a part in one partition."""

    partition: TopicPartition
    controller: Node
    leader: Node
    #: the others that have it, in the order in which they would be elected
    followers: list[Node]

    @property
    def bystanders(self) -> list[Node]:
        """Followers that are not the controller."""
        return [node for node in self.followers if node is not self.controller]


def newest_image(nodes: Sequence[Node]) -> ClusterImage:
    """What the broker knows that knows most."""
    images = [node.broker.image for node in nodes if node.broker is not None]
    return max(images, key=lambda image: image.offset, default=ClusterImage())


def casts(nodes: Sequence[Node]) -> list[Cast]:
    """Of all partitions, if every machine is up and every replica in sync; else none."""
    by_id = {node.id: node for node in nodes if node.broker is not None}
    controller = next((node for node in by_id.values() if _is_controller(node)), None)
    if controller is None or len(by_id) < len(nodes):
        return []
    return [
        Cast(
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
    """The partition as `node` has it; None where it does not, or is down."""
    for partition in () if node.broker is None else node.broker.partitions:
        if (partition.topic, partition.index) == (name.topic, name.partition):
            return partition
    return None


def _is_controller(node: Node) -> bool:
    return node.broker is not None and node.broker.controller.is_active


def _is_whole(partition: PartitionImage) -> bool:
    return partition.leader >= 0 and set(partition.isr) == set(partition.replicas)
