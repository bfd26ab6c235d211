"""Disasters that a seed puts together: some brokers, some ways to end, some damage to each disk.

Damage has a scope (segment, checkpoint, partition folder, topic folder, data directory, broker, metadata log,
vote) and a kind (remove, cut, zero, flip, roll back, swap, add). At least one broker's disk is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeAlias

from penstock.storage.memory import Directory
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import StateNotReached
from penstock.testing.simulation.disasters.rot import flip_somewhere
from penstock.testing.simulation.disasters.small_files import WAYS, spoil_some
from penstock.testing.simulation.disasters.steps import (
    DOWN,
    all_up,
    backup_at_clean_stop,
    below,
    bring_down,
    damage_of,
    load,
)
from penstock.testing.simulation.disasters.tampering import Folder
from penstock.testing.simulation.node import Node

__all__ = ["mixture"]

_DAY_MS: Final = 86_400_000
#: the damage to one disk; takes a copy of the disk from an earlier clean stop, if there is one
Blow: TypeAlias = Callable[[SimCluster, Node, Directory | None], None]


async def mixture(cluster: SimCluster) -> None:
    """One broker up to all but one end somehow, and lose or regain something meanwhile."""
    rng = cluster.rng
    await load(cluster)
    victims = rng.sample(cluster.nodes, rng.choice((1, 1, 2, len(cluster.nodes) - 1)))
    backed_up = [node for node in victims if rng.random() < 0.5]
    backups = await backup_at_clean_stop(cluster, backed_up)
    order = list(cluster.nodes) if rng.random() < 0.6 else list(victims)
    rng.shuffle(order)
    how = rng.choice((*DOWN, "any"))
    for node in order:
        await bring_down(cluster, [node], rng.choice(DOWN) if how == "any" else how)
    for node in victims:
        for _ in range(rng.choice((1, 1, 2))):
            # Files that an earlier fault has removed cannot be damaged.
            with suppress(StateNotReached):
                rng.choice(_BLOWS)(cluster, node, backups.get(node.id))
    if rng.random() < 0.1:
        node = rng.choice(cluster.nodes)
        node.clock.jump(rng.choice((-2, 2, 8)) * _DAY_MS)
        node.note("disaster: clock jumps by days")
    await all_up(cluster, victims[0])


def _folder(cluster: SimCluster, node: Node) -> Folder:
    folders = damage_of(cluster).folders(node)
    if not folders:
        raise StateNotReached
    return cluster.rng.choice(folders)


def _segment(cluster: SimCluster, node: Node) -> str:
    found = damage_of(cluster).segments(node, _folder(cluster, node))
    if not found:
        raise StateNotReached
    return cluster.rng.choice(found)


# -- segments


def _remove_segment(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    damage_of(cluster).remove(node, _segment(cluster, node))


def _cut_segment(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    path = _segment(cluster, node)
    damage_of(cluster).cut(node, path, cluster.rng.randint(0, node.disk.size(path)))


def _zero_segment(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    path = _segment(cluster, node)
    begin, end = sorted(cluster.rng.randint(0, node.disk.size(path)) for _ in range(2))
    damage_of(cluster).zero(node, path, begin, end)


def _flip_segment(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    flip_somewhere(cluster, node, _segment(cluster, node), 0)


# -- files beside the segments


def _spoil_files(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    spoil_some(cluster, node)


def _spoil_vote(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    damage_of(cluster).spoil_vote(node, cluster.rng.choice(WAYS))


# -- folders


def _remove_folder(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    damage_of(cluster).remove(node, _folder(cluster, node).path)


def _empty_folder(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    folder = _folder(cluster, node)
    damage_of(cluster).restore(node, folder.path, Directory())


def _remove_topic(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    damage_of(cluster).remove(node, _folder(cluster, node).topic_path)


def _roll_back_folder(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    folder = _folder(cluster, node)
    if backup is not None:
        damage_of(cluster).restore(node, folder.path, below(backup, folder.path))


def _swap_folders(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    one, other = _folder(cluster, node), _folder(cluster, node)
    if one != other:
        damage_of(cluster).swap(node, one, other)


# -- directories and brokers


def _roll_back_directory(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    path = cluster.rng.choice(node.directories)
    if not node.disk.is_dir(path):
        # The disk was wiped. With one of two directories back, the broker rightly refuses to start.
        raise StateNotReached
    if backup is not None:
        damage_of(cluster).restore(node, path, below(backup, path))


def _roll_back_broker(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    if backup is not None:
        for path in node.directories:
            damage_of(cluster).restore(node, path, below(backup, path))


def _wipe(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    damage_of(cluster).wipe(node)


# -- metadata


def _flip_metadata(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    damage_of(cluster).flip_metadata(node, cluster.rng)


# -- foreign files


def _litter(cluster: SimCluster, node: Node, backup: Directory | None) -> None:
    damage_of(cluster).litter(node, _folder(cluster, node), cluster.rng)


_BLOWS: Final[tuple[Blow, ...]] = (
    _remove_segment,
    _remove_segment,
    _cut_segment,
    _cut_segment,
    _zero_segment,
    _flip_segment,
    _flip_segment,
    _spoil_files,
    _spoil_files,
    _spoil_vote,
    _remove_folder,
    _empty_folder,
    _remove_topic,
    _roll_back_folder,
    _roll_back_folder,
    _swap_folders,
    _roll_back_directory,
    _roll_back_broker,
    _wipe,
    _flip_metadata,
    _litter,
)
