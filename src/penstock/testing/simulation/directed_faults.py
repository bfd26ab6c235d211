"""Directed faults: a few faults in the order that provokes one race. Drawn faults would meet it rarely.

A directed fault knows which node leads and which follow; the seed draws moments and durations. Each one is
there for a rule of the design that prevents a known loss. It raises `StateNotReached` if the cluster does not
reach the state that it waits for; the run then tested a few faults and nothing more. When the scenario heals
the cluster, it also repairs what a directed fault has broken.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from penstock.model.ids import TopicPartition
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import (
    ClusterRoles,
    StateNotReached,
    cluster_roles,
    replica_on,
)
from penstock.testing.simulation.fault_steps import leader_id, pause, until
from penstock.testing.simulation.network import Link
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.workload import Producer

__all__ = ["DIRECTED_FAULTS", "DirectedFault"]

DirectedFault: TypeAlias = Callable[[SimCluster], Awaitable[None]]
_SLOWISH: Final = Link(latency_s=(0.3, 0.6))
_SLOW: Final = Link(latency_s=(0.3, 1.2))
_SLOW_SYNC_S: Final = (0.3, 1.0)
_SYNC_S: Final = (0.0001, 0.002)


async def late_request(cluster: SimCluster) -> None:
    """AlterPartition arrives late: the replica that it adds has died by then, or is back with less."""
    roles = await _roles(cluster, _is_led_elsewhere)
    network, leader, joining = cluster.loop.network, roles.leader, roles.bystanders[0]
    joining.kill()
    await until(lambda: joining.id not in _isr(leader, roles.partition))
    await pause(cluster, 0.2, 1.0)
    network.set_link(leader.name, roles.controller.name, _SLOW)
    joining.boot()
    await until(lambda: joining.id in _proposed(leader, roles.partition))
    network.partition([leader.name], [joining.name])
    if cluster.rng.random() < 0.5:
        joining.kill()
    else:
        joining.power_off()
        await pause(cluster, 0.001, 0.1)
        joining.boot()
    await pause(cluster, 1.5, 2.5)


async def unheard_answer(cluster: SimCluster) -> None:
    """A replica has joined the ISR, its leader does not hear of that, and goes on writing without it.

    The controller itself is the replica: cut off from the leader in one direction, it can neither fetch nor
    answer, but hears the leader well.
    """
    roles = await _roles(cluster, lambda roles: roles.controller in roles.followers)
    network, partition = cluster.loop.network, roles.partition
    leader, joining = roles.leader, roles.controller
    network.cut(joining.name, leader.name)
    await until(lambda: leader.id in _proposed(leader, partition))
    network.restore(joining.name, leader.name)
    await until(lambda: joining.id not in _isr(leader, partition))
    await until(lambda: joining.id in _proposed(leader, partition))
    for node in roles.followers:
        network.cut(node.name, leader.name)
    # For longer than a replica counts as caught up, and so as good as in sync.
    await pause(cluster, 1.1, 1.6)
    for node in roles.bystanders:
        network.restore(node.name, leader.name)
    await pause(cluster, 0.8, 1.5)


async def deposed(cluster: SimCluster) -> None:
    """A leader is cut off from the controller and replaced; its AlterPartition request arrives after that."""
    roles = await _roles(cluster, _has_the_controller_for_heir)
    network, leader, controller = cluster.loop.network, roles.leader, roles.controller
    network.set_link(leader.name, controller.name, _SLOWISH)
    network.partition([leader.name], [roles.bystanders[0].name])
    await until(lambda: controller.id in _proposed(leader, roles.partition))
    network.cut(leader.name, controller.name)
    await until(lambda: leader_id(cluster, roles.partition) not in (leader.id, -1))
    await pause(cluster, 0.2, 1.0)
    network.restore(leader.name, controller.name)
    await pause(cluster, 1.0, 2.0)


async def behind_the_epoch(cluster: SimCluster) -> None:
    """A new leader has an old high watermark, and a replica that lacks committed records fetches from it."""
    roles = await _roles(cluster)
    heir, behind = roles.followers
    end_offset = _end(behind, roles.partition)
    behind.kill()
    await until(lambda: _high_watermark(roles.leader, roles.partition) > end_offset)
    roles.leader.kill()
    await pause(cluster, 0.01, 0.3)
    behind.boot()
    await until(lambda: behind.id in _proposed(heir, roles.partition))
    cluster.loop.network.cut(heir.name, behind.name)
    roles.leader.boot()
    await pause(cluster, 1.0, 2.5)


async def another_life(cluster: SimCluster) -> None:
    """A replica comes back with less than its leader knew it to have, and cannot say so at first."""
    roles = await _roles(cluster)
    back = cluster.rng.choice(roles.bystanders)
    cluster.loop.network.partition([roles.leader.name], [back.name])
    back.power_off()
    await pause(cluster, 0.001, 0.05)
    back.boot()
    await pause(cluster, 0.8, 1.5)


async def lost_tail(cluster: SimCluster) -> None:
    """The quorum's leader loses power before it has synced records that its followers already have."""
    roles = await _roles(cluster)
    controller, other = roles.controller, roles.bystanders[0]
    controller.sync_s = _SLOW_SYNC_S
    other.kill()
    await until(lambda: _is_ahead(cluster.nodes, controller))
    controller.power_off()
    controller.sync_s = _SYNC_S
    await pause(cluster, 0.001, 0.2)
    controller.boot()
    await pause(cluster, 0.05, 0.5)
    other.boot()
    await pause(cluster, 1.0, 2.0)


async def stuck_answer(cluster: SimCluster) -> None:
    """A fetch is answered, and the answer arrives after the records in it, and some before, have been cut.

    The answer is of a leader that has been replaced in between, and leads again.
    """
    roles = await _roles(cluster, _has_the_controller_for_heir)
    network, partition, leader = cluster.loop.network, roles.partition, roles.leader
    heir, follower = roles.followers
    network.cut(heir.name, leader.name)
    await until(lambda: _end(follower, partition) > _end(heir, partition))
    network.cut(leader.name, follower.name)
    await until(lambda: _end(leader, partition) > _end(follower, partition))
    for client, worker in cluster.workers:
        if isinstance(worker, Producer):
            # Its next appends could take the offsets of the truncated records.
            client.process.pause()
    leader.pause()
    await until(lambda: leader_id(cluster, partition) not in (leader.id, -1))
    network.restore(heir.name, leader.name)
    leader.resume()
    await until(lambda: leader_id(cluster, partition) == leader.id)
    await pause(cluster, 0.0, 0.3)
    network.restore(leader.name, follower.name)
    await pause(cluster, 0.5, 1.0)


async def nobody_left(cluster: SimCluster) -> None:
    """All that are in sync go, one after the other, while one that lacks records stays."""
    roles = await _roles(cluster)
    first, second = roles.followers
    cluster.loop.network.partition([roles.leader.name], [first.name])
    await until(lambda: first.id not in _isr(roles.leader, roles.partition))
    second.power_off()
    await pause(cluster, 0.0, 0.2)
    second.boot()
    await until(lambda: second.broker is not None)
    roles.leader.kill()
    await pause(cluster, 0.5, 2.0)


DIRECTED_FAULTS: Final[dict[str, DirectedFault]] = {
    fault.__name__: fault
    for fault in (
        late_request,
        unheard_answer,
        deposed,
        behind_the_epoch,
        another_life,
        lost_tail,
        stuck_answer,
        nobody_left,
    )
}


def _is_led_elsewhere(roles: ClusterRoles) -> bool:
    return roles.leader is not roles.controller


def _has_the_controller_for_heir(roles: ClusterRoles) -> bool:
    return roles.controller is roles.followers[0]


async def _roles(
    cluster: SimCluster, fits: Callable[[ClusterRoles], bool] = lambda roles: True
) -> ClusterRoles:
    """Of a partition that `fits`, when all is well and the load has run for a moment."""
    await pause(cluster, 0.1, 0.6)
    await until(lambda: bool(cluster_roles(cluster.nodes)))
    ours = [roles for roles in cluster_roles(cluster.nodes) if roles.partition in cluster.partitions]
    fitting = [roles for roles in ours if fits(roles)]
    if not fitting:
        raise StateNotReached
    chosen = cluster.rng.choice(fitting)
    followers = ", ".join(node.name for node in chosen.followers)
    cluster.note("plot", f"{chosen.leader.name} leads {followers} in {chosen.partition}")
    return chosen


def _isr(node: Node, partition: TopicPartition) -> list[int]:
    """As `node` knows it."""
    topic = None if node.broker is None else node.broker.stages.cluster.image.topics.get(partition.topic)
    return [] if topic is None else topic.partitions[partition.partition].isr


def _proposed(leader: Node, partition: TopicPartition) -> list[int]:
    """The ISR of the leader's AlterPartition request that is not answered yet."""
    replica = replica_on(leader, partition)
    state = None if replica is None else replica.leader_state
    if state is None or state.proposal is None:
        return []
    return [member.broker for member in state.proposal.isr]


def _end(node: Node, partition: TopicPartition) -> int:
    replica = replica_on(node, partition)
    return -1 if replica is None else replica.log.end_offset


def _high_watermark(node: Node, partition: TopicPartition) -> int:
    replica = replica_on(node, partition)
    return -1 if replica is None else replica.log.high_watermark


def _is_ahead(nodes: list[Node], controller: Node) -> bool:
    """Whether a node has records of the quorum that are not on the disk of its leader."""
    if controller.broker is None:
        return False
    flushed = controller.broker.stages.cluster.node.quorum.state.flushed_offset
    others = [node.broker for node in nodes if node.broker is not None and node is not controller]
    return any(broker.stages.cluster.node.log.end_offset > flushed for broker in others)
