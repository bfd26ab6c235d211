"""Steps of directed faults: wait for a state of the cluster, or move a leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.clients import Unanswered
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import (
    ClusterRoles,
    StateNotReached,
    cluster_roles,
    newest_image,
    replica_on,
)
from penstock.testing.simulation.node import Node
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions

__all__ = ["REPLACED_S", "has_uncommitted", "lead", "leader_id", "pause", "roles_of", "until"]

_GLANCE_S: Final = 0.0002
_LOOK_S: Final = 0.01
_PATIENCE_S: Final = 5.0
#: long enough for the controller to replace a leader
REPLACED_S: Final = 12.0


async def roles_of(cluster: SimCluster, topic: str, index: int | None = None) -> ClusterRoles:
    """Of a partition of `topic`, when all replicas are in sync and members have worked for a moment."""
    found: list[ClusterRoles] = []

    def is_there() -> bool:
        found[:] = [
            roles
            for roles in cluster_roles(cluster.nodes)
            if roles.partition.topic == topic and index in (None, roles.partition.partition)
        ]
        return bool(found)

    await until(is_there, REPLACED_S)
    await pause(cluster, 0.3, 1.0)
    await until(is_there, REPLACED_S)
    return cluster.rng.choice(found)


async def pause(cluster: SimCluster, low_s: float, high_s: float) -> None:
    await asyncio.sleep(cluster.rng.uniform(low_s, high_s))


async def until(
    condition: Callable[[], bool], patience_s: float = _PATIENCE_S, glance_s: float = _GLANCE_S
) -> None:
    """Wait for something that has to come about; StateNotReached if it does not."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while not condition():
        if loop.time() > deadline:
            raise StateNotReached
        await asyncio.sleep(glance_s)


def leader_id(cluster: SimCluster, partition: TopicPartition, without: Node | None = None) -> int:
    """The leader in the newest image, perhaps of all nodes but one; -1 if there is none."""
    topic = newest_image([node for node in cluster.nodes if node is not without]).topics.get(partition.topic)
    return -1 if topic is None else topic.partitions[partition.partition].leader


def has_uncommitted(node: Node, roles: ClusterRoles) -> bool:
    replica = replica_on(node, roles.partition)
    return replica is not None and replica.log.high_watermark < replica.log.end_offset


async def lead(cluster: SimCluster, partition: TopicPartition, node: Node) -> None:
    """Have `node`, which has an in-sync replica, lead the partition."""
    admin, loop = cluster.admin, cluster.loop

    def leader() -> int:
        return newest_image(cluster.nodes).topics[partition.topic].partitions[partition.partition].leader

    replicas = newest_image(cluster.nodes).topics[partition.topic].partitions[partition.partition].replicas
    order = [node.id, *(replica for replica in replicas if replica != node.id)]
    moved = ReassignablePartition(partition_index=partition.partition, replicas=order)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=partition.topic, partitions=[moved])]
    )
    elected = ElectLeadersRequest(
        topic_partitions=[TopicPartitions(topic=partition.topic, partitions=[partition.partition])]
    )

    async def send() -> None:
        # Not to any broker: one that has lost the controller would keep the request.
        await admin.send(controller, ALTER_PARTITION_REASSIGNMENTS, request)
        await admin.send(controller, ELECT_LEADERS, elected)

    deadline = loop.time() + REPLACED_S
    controller = next(
        each.address
        for each in cluster.nodes
        if each.broker and each.broker.stages.cluster.node.controller.is_active
    )
    while leader() != node.id:
        if loop.time() > deadline:
            raise StateNotReached
        with suppress(Unanswered):
            await admin.process.spawn(loop, send())
        await asyncio.sleep(_LOOK_S)
