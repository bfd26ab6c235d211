"""Steps that disasters are made of: load, orderly and disorderly ends, backups, starts in some order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from penstock.model.ids import TopicPartition
from penstock.storage.memory import Directory
from penstock.testing.simulation import fault_steps
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import ClusterRoles, StateNotReached, cluster_roles
from penstock.testing.simulation.convergence import unsettled
from penstock.testing.simulation.disasters.damage import Damage
from penstock.testing.simulation.disasters.tampering import Folder
from penstock.testing.simulation.fault_steps import pause
from penstock.testing.simulation.node import Node

__all__ = [
    "DOWN",
    "Disaster",
    "all_down",
    "all_up",
    "backup_at_clean_stop",
    "below",
    "bring_down",
    "damage_of",
    "down",
    "folder_of",
    "load",
    "one_or_all_down",
    "pause",
    "staggered",
    "start",
    "steady",
    "until",
]

Disaster: TypeAlias = Callable[[SimCluster], Awaitable[None]]
#: ways in which a broker ends
DOWN: Final = ("stopped", "killed", "powerless")
_GLANCE_S: Final = 0.02
_PATIENCE_S: Final = 20.0


def damage_of(cluster: SimCluster) -> Damage:
    assert cluster.damage is not None
    return cluster.damage


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that has to come about; StateNotReached if it does not."""
    await fault_steps.until(condition, _PATIENCE_S, _GLANCE_S)


async def steady(cluster: SimCluster) -> ClusterRoles:
    """A partition of the topic that clients use, once every broker is up and every replica in sync."""
    partitions = cluster.partitions

    def found() -> list[ClusterRoles]:
        return [roles for roles in cluster_roles(cluster.nodes) if roles.partition in partitions]

    await until(lambda: len(found()) == len(partitions))
    return cluster.rng.choice(found())


async def load(cluster: SimCluster) -> ClusterRoles:
    """Let clients write for long enough that every partition has several segments."""
    await steady(cluster)
    await pause(cluster, 1.0, 2.0)
    return await steady(cluster)


async def bring_down(cluster: SimCluster, nodes: Sequence[Node], how: str, gap_s: float = 0.3) -> None:
    """End brokers one after the other, the last of `nodes` last."""
    for node in nodes:
        await pause(cluster, 0.0, gap_s)
        if how == "stopped":
            await until(lambda node=node: node.broker is not None or not node.is_up)  # type: ignore[misc]
            node.stop()
            await until(lambda node=node: not node.is_up)  # type: ignore[misc]
        elif how == "killed":
            node.kill()
        else:
            node.power_off()
        node.mount()


async def start(cluster: SimCluster, nodes: Sequence[Node], gap_s: float = 0.5) -> None:
    """Start brokers one after the other, and wait a moment."""
    for node in nodes:
        await pause(cluster, 0.0, gap_s)
        node.boot()
    await pause(cluster, 0.5, 2.0)


async def backup_at_clean_stop(cluster: SimCluster, nodes: Sequence[Node]) -> dict[int, Directory]:
    """Stop each node, copy its whole disk, and start it again; then clients write some more."""
    backups = {}
    for node in nodes:
        await bring_down(cluster, [node], "stopped")
        backups[node.id] = damage_of(cluster).backup(node, "")
        node.boot()
        await until(lambda: unsettled_replicas(cluster) is None)
    await load(cluster)
    return backups


def unsettled_replicas(cluster: SimCluster) -> str | None:
    """Why replicas have not converged; None once every partition has a leader and in-sync followers."""
    left = unsettled(cluster.nodes)
    return None if len(cluster_roles(cluster.nodes)) >= len(cluster.partitions) else left


def folder_of(cluster: SimCluster, node: Node, partition: TopicPartition) -> Folder:
    """Where a node has a partition."""
    found = [f for f in damage_of(cluster).folders(node) if f.partition == partition]
    if not found:
        raise StateNotReached
    return found[0]


def below(backup: Directory, path: str) -> Directory:
    """The part of a copy of a whole disk that lies at `path`."""
    for name in filter(None, path.split("/")):
        found = backup.get(name)
        if not isinstance(found, Directory):
            raise StateNotReached
        backup = found
    return backup


async def down(cluster: SimCluster, victim: Node, how: str) -> None:
    """End all brokers; the victim is mostly the last, and so the last leader."""
    others = [node for node in cluster.nodes if node is not victim]
    cluster.rng.shuffle(others)
    order = [*others, victim]
    if cluster.rng.random() < 0.3:
        cluster.rng.shuffle(order)
    await bring_down(cluster, order, how)


async def all_down(cluster: SimCluster, how: str) -> tuple[ClusterRoles, Node]:
    """Load, and then all brokers end; the victim is mostly the last."""
    roles = await load(cluster)
    victim = cluster.rng.choice([roles.leader, roles.leader, *roles.followers])
    await down(cluster, victim, how)
    return roles, victim


async def one_or_all_down(cluster: SimCluster, how: str = "stopped") -> tuple[ClusterRoles, Node]:
    """Load, and then all brokers end, or only the victim, which leads or follows."""
    if cluster.rng.random() < 0.5:
        return await all_down(cluster, how)
    roles = await load(cluster)
    victim = cluster.rng.choice([roles.leader, *roles.followers])
    await bring_down(cluster, [victim], how)
    return roles, victim


async def all_up(cluster: SimCluster, victim: Node) -> None:
    """Start all brokers that are down: the victim first, or in any order, or one broker much later."""
    damage_of(cluster).assess()
    others = [node for node in cluster.nodes if node is not victim]
    cluster.rng.shuffle(others)
    order = [victim, *others]
    match cluster.rng.choice(("victim first", "any order", "others late")):
        case "victim first":
            await start(cluster, order)
        case "any order":
            cluster.rng.shuffle(order)
            await start(cluster, order)
        case _:
            await _staggered(cluster, order[:-1], order[-1:])


async def staggered(cluster: SimCluster, first: Sequence[Node], later: Sequence[Node]) -> None:
    """Start some brokers, and the rest after a while."""
    damage_of(cluster).assess()
    await _staggered(cluster, first, later)


async def _staggered(cluster: SimCluster, first: Sequence[Node], later: Sequence[Node]) -> None:
    await start(cluster, first)
    await pause(cluster, 1.0, 5.0)
    await start(cluster, later)
