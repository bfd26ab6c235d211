"""Directed faults of delay topics: each leads into a race that could lose a message or move it twice."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from penstock.records.record import iter_batches
from penstock.shares.delay_log import Plan, parse_progress
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import ClusterRoles, StateNotReached, replica_on
from penstock.testing.simulation.delays import PRODUCER, TARGET_TOPIC
from penstock.testing.simulation.fault_steps import (
    REPLACED_S,
    has_uncommitted,
    lead,
    pause,
    roles_of,
    until,
)
from penstock.testing.simulation.log_starts import DELAY_TOPIC
from penstock.testing.simulation.network import Link
from penstock.testing.simulation.node import Node

__all__ = ["DELAY_FAULTS"]

_DirectedFault: TypeAlias = Callable[[SimCluster], Awaitable[None]]
#: of the metadata that a mover gets: it believes for so long that a target has its old leader
_OUTDATED: Final = Link(latency_s=(1.0, 2.0))


async def delay_leader_killed(cluster: SimCluster) -> None:
    """Leaders of a delay topic are killed while they move a message."""
    for _ in range(3):
        roles = await roles_of(cluster, DELAY_TOPIC)
        await until(lambda: _is_moving(roles.leader, roles), REPLACED_S)  # noqa: B023
        await pause(cluster, 0.0, 0.01)
        roles.leader.kill()
        await pause(cluster, 0.5, 1.5)
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
    batch = bytes(found.read_unverified())
    (_, header), *others = iter_batches(batch)
    return header.is_control and not others and isinstance(parse_progress(batch), Plan)


async def delay_target_moved(cluster: SimCluster) -> None:
    """The target gets another leader, which lacks a batch of the last one. The mover does not know it.

    The last leader follows, and cannot reach the new one: the batch stays in its log for a while. Needs five
    brokers: controller, mover, both leaders of the target, and a majority in sync.
    """
    network = cluster.loop.network
    target = await roles_of(cluster, TARGET_TOPIC)
    if target.leader is target.controller:
        await lead(cluster, target.partition, target.bystanders[0])
        target = await roles_of(cluster, TARGET_TOPIC)
    delay = await roles_of(cluster, DELAY_TOPIC)
    taken = (target.leader, target.controller)
    if delay.leader in taken:
        free = [node for node in delay.followers if node not in taken]
        await lead(cluster, delay.partition, free[0])
        delay = await roles_of(cluster, DELAY_TOPIC)
    mover, last = delay.leader, target.leader
    others = [node for node in target.bystanders if node is not mover]
    if not others:
        raise StateNotReached
    network.partition([last.name], [others[0].name])
    network.set_link(target.controller.name, mover.name, _OUTDATED)
    await until(lambda: has_uncommitted(last, target))
    await lead(cluster, target.partition, others[0])
    await pause(cluster, 1.0, 2.5)
    network.heal()
    await pause(cluster, 1.0, 2.0)


async def delay_replica_reset(cluster: SimCluster) -> None:
    """A producer does not hear of a message that is moved while a replica is down. Then the replica leads."""
    network = cluster.loop.network
    roles = await roles_of(cluster, DELAY_TOPIC)
    leader, replica = roles.leader, roles.followers[-1]
    replica.kill()
    await pause(cluster, 0.2, 0.5)
    end = _end(leader, roles)
    network.cut(leader.name, PRODUCER)
    await until(lambda: _end(leader, roles) > end)
    # All messages are due by then.
    await pause(cluster, 3.5, 4.5)
    replica.boot()
    await roles_of(cluster, DELAY_TOPIC)
    await lead(cluster, roles.partition, replica)
    network.heal()
    await pause(cluster, 1.5, 2.5)


def _end(node: Node, roles: ClusterRoles) -> int:
    replica = replica_on(node, roles.partition)
    return -1 if replica is None else replica.log.end_offset


DELAY_FAULTS: Final[dict[str, _DirectedFault]] = {
    fault.__name__: fault for fault in (delay_leader_killed, delay_target_moved, delay_replica_reset)
}
