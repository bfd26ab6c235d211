"""Directed faults of share groups: each leads into a race that one rule of share groups decides.

They act on the leader of a partition that the share group reads, or on a share coordinator, and leave the
connections to clients as they are: members go on with a leader that was replaced.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.broker.coordinators.share_state_service import coordinator_key
from penstock.coordination.partitioning import partition_of
from penstock.model.ids import SHARE_STATE_TOPIC, TopicPartition
from penstock.shares.shard import ShareStateKey
from penstock.testing.simulation.cluster import TOPIC, SimCluster
from penstock.testing.simulation.cluster_roles import (
    ClusterRoles,
    StateNotReached,
    newest_image,
)
from penstock.testing.simulation.delay_faults import DELAY_FAULTS
from penstock.testing.simulation.fault_steps import (
    REPLACED_S,
    has_uncommitted,
    lead,
    leader_id,
    pause,
    roles_of,
    until,
)
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.queue_kills import queue_kills, share_kills_in_turn
from penstock.testing.simulation.share_members import ShareMember
from penstock.testing.simulation.shares import SHARE_GROUP

__all__ = ["SHARE_FAULTS"]

_DirectedFault: TypeAlias = Callable[[SimCluster], Awaitable[None]]
#: records that a leader has to have to finish some of them after it was replaced
_BACKLOG: Final = 6


async def share_leader_isolated(cluster: SimCluster) -> None:
    """The leader of a partition loses all other brokers, is replaced, and comes back. Clients reach it."""
    await _isolate(cluster, await roles_of(cluster, TOPIC))


async def share_leader_behind(cluster: SimCluster) -> None:
    """The leader of a partition does not learn that it was replaced. It reaches the share coordinator.

    Half of the members learn of the new leader. The old one has records that its members can still finish.
    """
    roles = await _spread(cluster)
    network, leader, controller = cluster.loop.network, roles.leader, roles.controller
    with suppress(StateNotReached):
        await until(lambda: _unfinished(leader, roles) >= _BACKLOG)
    network.cut(controller.name, leader.name)
    network.cut(leader.name, controller.name)
    cluster.note("network", f"{leader.name} loses the controller {controller.name}")
    await lead(cluster, roles.partition, cluster.rng.choice(roles.followers))
    moved = [client for client, worker in cluster.workers if isinstance(worker, ShareMember)][::2]

    def is_loaded() -> bool:
        for client in moved:
            client.forget_leaders(TOPIC)
        return _is_loaded(cluster, roles, leader)

    await until(is_loaded, REPLACED_S)
    await pause(cluster, 1.0, 2.5)
    network.heal()
    await pause(cluster, 0.5, 2.0)


async def share_leader_returns(cluster: SimCluster) -> None:
    """The leader of a partition is replaced, and leads again soon. Members use both leaders."""
    roles = await roles_of(cluster, TOPIC)
    await lead(cluster, roles.partition, cluster.rng.choice(roles.followers))
    await until(lambda: _is_loaded(cluster, roles, roles.leader), REPLACED_S)
    await pause(cluster, 0.2, 0.6)
    await lead(cluster, roles.partition, roles.leader)
    await pause(cluster, 1.5, 3.0)


async def _spread(cluster: SimCluster) -> ClusterRoles:
    """Have the controller, the leader of a partition and its share coordinator be three brokers."""
    roles = await roles_of(cluster, TOPIC)
    await until(lambda: _coordinator(cluster, roles) is not None, REPLACED_S)
    if roles.leader is roles.controller:
        await lead(cluster, roles.partition, roles.bystanders[0])
        roles = await roles_of(cluster, TOPIC, roles.partition.partition)
    states = _coordinator(cluster, roles)
    assert states is not None
    await lead(cluster, states, roles.bystanders[0])
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
    for host in [] if node.program is None else node.program.stages.coordinators.shares.partitions.hosts():
        if host.share is not None and host.key.partition == roles.partition.partition:
            return host.partition.log.high_watermark - host.share.start_offset - host.share.complete
    return 0


def _is_loaded(cluster: SimCluster, roles: ClusterRoles, before: Node) -> bool:
    """Returns true if a leader after `before` has read the state of the share partition."""
    epochs = {
        node.id: host.leader_epoch
        for node in cluster.nodes
        if node.program is not None
        for host in node.program.stages.coordinators.shares.partitions.hosts()
        if host.share is not None and host.key.partition == roles.partition.partition
    }
    return any(epoch > epochs.get(before.id, -1) for node, epoch in epochs.items() if node != before.id)


async def share_coordinator_isolated(cluster: SimCluster) -> None:
    """A share coordinator loses all other brokers, is replaced, and comes back. Clients reach it."""
    await _isolate(cluster, await roles_of(cluster, SHARE_STATE_TOPIC))


async def share_write_unreplicated(cluster: SimCluster) -> None:
    """A share coordinator is killed when it has records that no other replica has."""
    roles = await roles_of(cluster, SHARE_STATE_TOPIC)
    for node in roles.followers:
        cluster.loop.network.cut(node.name, roles.leader.name)
    await until(lambda: has_uncommitted(roles.leader, roles))
    await pause(cluster, 0.0, 0.2)
    roles.leader.kill()
    cluster.loop.network.heal()
    await pause(cluster, 2.0, 4.0)


async def share_leaders_in_turn(cluster: SimCluster) -> None:
    """The leaders of a partition are killed one after the other, and started again."""
    for topic in (TOPIC, SHARE_STATE_TOPIC, TOPIC):
        roles = await roles_of(cluster, topic)
        roles.leader.kill()
        await pause(cluster, 0.3, 1.0)
        roles.leader.boot()
        await pause(cluster, 0.5, 1.5)


async def _isolate(cluster: SimCluster, roles: ClusterRoles) -> None:
    network, leader = cluster.loop.network, roles.leader
    for node in cluster.nodes:
        if node is not leader:
            network.cut(node.name, leader.name)
            network.cut(leader.name, node.name)
    cluster.note("network", f"{leader.name} loses all other brokers")
    await until(lambda: leader_id(cluster, roles.partition, leader) not in (leader.id, -1), REPLACED_S)
    await pause(cluster, 0.5, 2.0)
    network.heal()
    await pause(cluster, 0.5, 2.0)


SHARE_FAULTS: Final[dict[str, _DirectedFault]] = {
    fault.__name__: fault
    for fault in (
        share_leader_isolated,
        share_leader_behind,
        share_leader_returns,
        share_coordinator_isolated,
        share_write_unreplicated,
        share_leaders_in_turn,
        queue_kills,
        share_kills_in_turn,
    )
} | DELAY_FAULTS
