"""Directed faults of share groups: each leads into a race that one rule of share groups decides.

They act on the leader of a partition that the share group reads, or on a share coordinator, and leave the
connections to clients as they are: members go on with a leader that was replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.broker.coordinators.share_state_service import coordinator_key
from penstock.coordination.partitioning import partition_of
from penstock.model.ids import SHARE_STATE_TOPIC, TopicPartition
from penstock.records.record import iter_batches
from penstock.shares.delay_log import Plan, parse_progress
from penstock.shares.shard import ShareStateKey
from penstock.testing.simulation.clients import Unanswered
from penstock.testing.simulation.cluster import TOPIC, SimCluster
from penstock.testing.simulation.cluster_roles import (
    ClusterRoles,
    StateNotReached,
    cluster_roles,
    newest_image,
    replica_on,
)
from penstock.testing.simulation.log_starts import DELAY_TOPIC
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.share_members import ShareMember
from penstock.testing.simulation.shares import SHARE_GROUP
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions

__all__ = ["SHARE_FAULTS"]

_DirectedFault: TypeAlias = Callable[[SimCluster], Awaitable[None]]
_GLANCE_S: Final = 0.0002
_LOOK_S: Final = 0.01
_PATIENCE_S: Final = 5.0
#: records that a leader has to have to finish some of them after it was replaced
_BACKLOG: Final = 6
#: long enough for the controller to replace a leader
_REPLACED_S: Final = 12.0


async def share_leader_isolated(cluster: SimCluster) -> None:
    """The leader of a partition loses all other brokers, is replaced, and comes back. Clients reach it."""
    await _isolate(cluster, await _roles(cluster, TOPIC))


async def share_leader_behind(cluster: SimCluster) -> None:
    """The leader of a partition does not learn that it was replaced. It reaches the share coordinator.

    Half of the members learn of the new leader. The old one has records that its members can still finish.
    """
    roles = await _spread(cluster)
    network, leader, controller = cluster.loop.network, roles.leader, roles.controller
    with suppress(StateNotReached):
        await _until(lambda: _unfinished(leader, roles) >= _BACKLOG)
    network.cut(controller.name, leader.name)
    network.cut(leader.name, controller.name)
    cluster.note("network", f"{leader.name} loses the controller {controller.name}")
    await _lead(cluster, roles.partition, cluster.rng.choice(roles.followers))
    moved = [client for client, worker in cluster.workers if isinstance(worker, ShareMember)][::2]

    def is_loaded() -> bool:
        for client in moved:
            client.forget_leaders(TOPIC)
        return _is_loaded(cluster, roles, leader)

    await _until(is_loaded, _REPLACED_S)
    await _pause(cluster, 1.0, 2.5)
    network.heal()
    await _pause(cluster, 0.5, 2.0)


async def share_leader_returns(cluster: SimCluster) -> None:
    """The leader of a partition is replaced, and leads again soon. Members use both leaders."""
    roles = await _roles(cluster, TOPIC)
    await _lead(cluster, roles.partition, cluster.rng.choice(roles.followers))
    await _until(lambda: _is_loaded(cluster, roles, roles.leader), _REPLACED_S)
    await _pause(cluster, 0.2, 0.6)
    await _lead(cluster, roles.partition, roles.leader)
    await _pause(cluster, 1.5, 3.0)


async def _spread(cluster: SimCluster) -> ClusterRoles:
    """Have the controller, the leader of a partition and its share coordinator be three brokers."""
    roles = await _roles(cluster, TOPIC)
    await _until(lambda: _coordinator(cluster, roles) is not None, _REPLACED_S)
    if roles.leader is roles.controller:
        await _lead(cluster, roles.partition, roles.bystanders[0])
        roles = await _roles(cluster, TOPIC, roles.partition.partition)
    states = _coordinator(cluster, roles)
    assert states is not None
    await _lead(cluster, states, roles.bystanders[0])
    return roles


def _coordinator(cluster: SimCluster, roles: ClusterRoles) -> TopicPartition | None:
    """The partition of `__share_group_state` that has the state of a share partition."""
    topics = newest_image(cluster.nodes).topics
    states = topics.get(SHARE_STATE_TOPIC)
    if states is None:
        return None
    key = ShareStateKey(SHARE_GROUP, topics[TOPIC].id, roles.partition.partition)
    return TopicPartition(SHARE_STATE_TOPIC, partition_of(coordinator_key(key), len(states.partitions)))


def _unfinished(node: Node, roles: ClusterRoles) -> int:
    """The number of committed records that the share group has not finished."""
    for host in [] if node.program is None else node.program.parts.shares.partitions.hosts():
        if host.share is not None and host.key.partition == roles.partition.partition:
            return host.partition.log.high_watermark - host.share.start_offset - host.share.complete
    return 0


def _is_loaded(cluster: SimCluster, roles: ClusterRoles, before: Node) -> bool:
    """Returns true if a leader after `before` has read the state of the share partition."""
    epochs = {
        node.id: host.leader_epoch
        for node in cluster.nodes
        if node.program is not None
        for host in node.program.parts.shares.partitions.hosts()
        if host.share is not None and host.key.partition == roles.partition.partition
    }
    return any(epoch > epochs.get(before.id, -1) for node, epoch in epochs.items() if node != before.id)


async def _lead(cluster: SimCluster, partition: TopicPartition, node: Node) -> None:
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

    deadline = loop.time() + _REPLACED_S
    controller = next(
        each.address for each in cluster.nodes if each.broker and each.broker.controller.is_active
    )
    while leader() != node.id:
        if loop.time() > deadline:
            raise StateNotReached
        with suppress(Unanswered):
            await admin.process.spawn(loop, send())
        await asyncio.sleep(_LOOK_S)


async def share_coordinator_isolated(cluster: SimCluster) -> None:
    """A share coordinator loses all other brokers, is replaced, and comes back. Clients reach it."""
    await _isolate(cluster, await _roles(cluster, SHARE_STATE_TOPIC))


async def share_write_unreplicated(cluster: SimCluster) -> None:
    """A share coordinator is killed when it has records that no other replica has."""
    roles = await _roles(cluster, SHARE_STATE_TOPIC)
    for node in roles.followers:
        cluster.loop.network.cut(node.name, roles.leader.name)
    await _until(lambda: _has_uncommitted(roles.leader, roles))
    await _pause(cluster, 0.0, 0.2)
    roles.leader.kill()
    cluster.loop.network.heal()
    await _pause(cluster, 2.0, 4.0)


async def share_leaders_in_turn(cluster: SimCluster) -> None:
    """The leaders of a partition are killed one after the other, and started again."""
    for topic in (TOPIC, SHARE_STATE_TOPIC, TOPIC):
        roles = await _roles(cluster, topic)
        roles.leader.kill()
        await _pause(cluster, 0.3, 1.0)
        roles.leader.boot()
        await _pause(cluster, 0.5, 1.5)


async def delay_leader_killed(cluster: SimCluster) -> None:
    """Leaders of a delay topic are killed while they move a message."""
    for _ in range(3):
        roles = await _roles(cluster, DELAY_TOPIC)
        await _until(lambda: _is_moving(roles.leader, roles), _REPLACED_S)  # noqa: B023
        await _pause(cluster, 0.0, 0.01)
        roles.leader.kill()
        await _pause(cluster, 0.5, 1.5)
        roles.leader.boot()


def _is_moving(node: Node, roles: ClusterRoles) -> bool:
    """Returns true if the last record of the log is a plan: the message is not in the target, or just now."""
    replica = replica_on(node, roles.partition)
    if replica is None or replica.log.end_offset == replica.log.log_start_offset:
        return False
    end = replica.log.end_offset
    found = replica.log.read(end - 1, 1 << 16, upper=end, at_least_one=True)
    if found is None:
        return False
    batch = bytes(found.read())
    (_, header), *others = iter_batches(batch)
    return header.is_control and not others and isinstance(parse_progress(batch), Plan)


async def _isolate(cluster: SimCluster, roles: ClusterRoles) -> None:
    network, leader = cluster.loop.network, roles.leader
    for node in cluster.nodes:
        if node is not leader:
            network.cut(node.name, leader.name)
            network.cut(leader.name, node.name)
    cluster.note("network", f"{leader.name} loses all other brokers")
    await _until(lambda: _leader_id(cluster, roles, leader) not in (leader.id, -1), _REPLACED_S)
    await _pause(cluster, 0.5, 2.0)
    network.heal()
    await _pause(cluster, 0.5, 2.0)


SHARE_FAULTS: Final[dict[str, _DirectedFault]] = {
    fault.__name__: fault
    for fault in (
        share_leader_isolated,
        share_leader_behind,
        share_leader_returns,
        share_coordinator_isolated,
        share_write_unreplicated,
        share_leaders_in_turn,
        delay_leader_killed,
    )
}


async def _roles(cluster: SimCluster, topic: str, index: int | None = None) -> ClusterRoles:
    """Of a partition of `topic`, when all replicas are in sync and members have worked for a moment."""
    found: list[ClusterRoles] = []

    def is_there() -> bool:
        found[:] = [
            roles
            for roles in cluster_roles(cluster.nodes)
            if roles.partition.topic == topic and index in (None, roles.partition.partition)
        ]
        return bool(found)

    await _until(is_there, _REPLACED_S)
    await _pause(cluster, 0.3, 1.0)
    await _until(is_there, _REPLACED_S)
    return cluster.rng.choice(found)


async def _pause(cluster: SimCluster, low_s: float, high_s: float) -> None:
    await asyncio.sleep(cluster.rng.uniform(low_s, high_s))


async def _until(condition: Callable[[], bool], patience_s: float = _PATIENCE_S) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience_s
    while not condition():
        if loop.time() > deadline:
            raise StateNotReached
        await asyncio.sleep(_GLANCE_S)


def _leader_id(cluster: SimCluster, roles: ClusterRoles, without: Node) -> int:
    nodes = [node for node in cluster.nodes if node is not without]
    topic = newest_image(nodes).topics.get(roles.partition.topic)
    return -1 if topic is None else topic.partitions[roles.partition.partition].leader


def _has_uncommitted(node: Node, roles: ClusterRoles) -> bool:
    replica = replica_on(node, roles.partition)
    return replica is not None and replica.log.high_watermark < replica.log.end_offset
