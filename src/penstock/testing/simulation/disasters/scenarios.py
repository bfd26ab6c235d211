"""Disasters in the order that leads into a known loss, one per kind.

Each is a coroutine that a simulation runs instead of drawn faults: clients write, brokers end, disks are
tampered with, brokers start. `Damage.assess` derives the expectations from then on.
"""

from __future__ import annotations

from typing import Final

from penstock.model.ids import OFFSETS_TOPIC
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import StateNotReached
from penstock.testing.simulation.disasters.steps import (
    DOWN,
    Disaster,
    all_down,
    all_up,
    backup_at_clean_stop,
    below,
    bring_down,
    damage_of,
    down,
    folder_of,
    load,
    one_or_all_down,
    pause,
    staggered,
    start,
    until,
)

__all__ = ["DIRECTED", "SINGLE"]

_TAIL_BYTES: Final = 4096
#: files of a data directory with log starts
_LOG_STARTS: Final = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint")


async def folder_removed(cluster: SimCluster) -> None:
    """A partition's or a topic's folder is removed on one broker after a clean stop of all."""
    roles, victim = await all_down(cluster, "stopped")
    damage = damage_of(cluster)
    folder = folder_of(cluster, victim, roles.partition)
    damage.remove(victim, cluster.rng.choice((folder.path, folder.topic_path)))
    await all_up(cluster, victim)


async def folder_rolled_back(cluster: SimCluster) -> None:
    """Partition folders are rolled back to an older copy, on the broker that stopped last."""
    roles = await load(cluster)
    victim = cluster.rng.choice([roles.leader, *roles.followers])
    damage = damage_of(cluster)
    backup = (await backup_at_clean_stop(cluster, [victim]))[victim.id]
    await down(cluster, victim, "stopped")
    topic = cluster.rng.choice((roles.partition.topic, roles.partition.topic, OFFSETS_TOPIC))
    for folder in damage.folders(victim):
        if folder.partition.topic == topic:
            damage.restore(victim, folder.path, below(backup, folder.path))
    await all_up(cluster, victim)


async def top_segment_removed(cluster: SimCluster) -> None:
    """The newest segment is removed on the broker that stopped last."""
    roles, victim = await all_down(cluster, "stopped")
    damage = damage_of(cluster)
    damage.remove(victim, damage.segments(victim, folder_of(cluster, victim, roles.partition))[-1])
    await all_up(cluster, victim)


async def directory_rolled_back(cluster: SimCluster) -> None:
    """The second of two data directories is rolled back to an older copy that was closed cleanly."""
    roles = await load(cluster)
    victim = cluster.rng.choice([roles.leader, *roles.followers])
    backup = (await backup_at_clean_stop(cluster, [victim]))[victim.id]
    await down(cluster, victim, "stopped")
    second = victim.directories[1]
    damage_of(cluster).restore(victim, second, below(backup, second))
    await all_up(cluster, victim)


async def tail_lost(cluster: SimCluster) -> None:
    """All brokers are killed in turn, and the last one loses the end of a log."""
    how = cluster.rng.choice(("killed", "powerless"))
    roles, victim = await all_down(cluster, how)
    damage = damage_of(cluster)
    folder = folder_of(cluster, victim, roles.partition)
    last = damage.segments(victim, folder)[-1]
    match cluster.rng.choice(("bytes", "segment", "folder")):
        case "bytes":
            size = victim.disk.size(last)
            damage.cut(victim, last, max(0, size - cluster.rng.randint(1, _TAIL_BYTES)))
        case "segment":
            damage.remove(victim, last)
        case _:
            damage.remove(victim, folder.path)
    await all_up(cluster, victim)


async def operator_gives_up(cluster: SimCluster) -> None:
    """All but one lose a log; an operator has one of them elected, and the complete one comes back later."""
    roles = await load(cluster)
    replicas = [roles.leader, *roles.followers]
    cluster.rng.shuffle(replicas)
    sound, *empty = replicas
    order = list(cluster.nodes)
    cluster.rng.shuffle(order)
    await bring_down(cluster, order, "killed")
    damage = damage_of(cluster)
    for node in empty:
        damage.remove(node, folder_of(cluster, node, roles.partition).path)
    damage.assess()
    damage.accept_loss()
    await start(cluster, [node for node in order if node is not sound])
    await cluster.elect_unclean(roles.partition)
    await pause(cluster, 0.5, 1.5)
    await start(cluster, [sound])


async def middle_segment_removed(cluster: SimCluster) -> None:
    """A segment in the middle of a log is removed on one replica."""
    roles, victim = await one_or_all_down(cluster)
    damage = damage_of(cluster)
    segments = damage.segments(victim, folder_of(cluster, victim, roles.partition))
    if len(segments) < 3:
        raise StateNotReached
    damage.remove(victim, cluster.rng.choice(segments[1:-1]))
    await all_up(cluster, victim)


async def first_segment_removed(cluster: SimCluster) -> None:
    """The oldest segment is removed on one replica, which leads later; saved log starts may go with it."""
    roles, victim = await one_or_all_down(cluster)
    damage = damage_of(cluster)
    folder = folder_of(cluster, victim, roles.partition)
    segments = damage.segments(victim, folder)
    if len(segments) < 2:
        raise StateNotReached
    damage.remove(victim, segments[0])
    for name in cluster.rng.choice(((), _LOG_STARTS[:1], _LOG_STARTS)):
        damage.spoil(victim, f"{folder.directory}/{name}", cluster.rng.choice(("removed", "emptied")))
    await all_up(cluster, victim)


async def log_start_forgotten(cluster: SimCluster) -> None:
    """After a crash, one replica lacks its oldest segment and every record of its log start."""
    roles, victim = await one_or_all_down(cluster, cluster.rng.choice(DOWN[1:]))
    damage = damage_of(cluster)
    folder = folder_of(cluster, victim, roles.partition)
    segments = damage.segments(victim, folder)
    if len(segments) < 2:
        raise StateNotReached
    damage.remove(victim, segments[0])
    for name in _LOG_STARTS:
        if victim.disk.exists(f"{folder.directory}/{name}"):
            damage.spoil(victim, f"{folder.directory}/{name}", cluster.rng.choice(("removed", "emptied")))
    await all_up(cluster, victim)


async def metadata_flipped(cluster: SimCluster) -> None:
    """One bit of the metadata log changes, on one voter or on all but one."""
    how = cluster.rng.choice(("stopped", "stopped", "killed"))
    _, victim = await all_down(cluster, how)
    others = [node for node in cluster.nodes if node is not victim]
    count = cluster.rng.choice((1, max(1, len(cluster.nodes) - 1)))
    for node in [victim, *others][:count]:
        damage_of(cluster).flip_metadata(node, cluster.rng)
    await all_up(cluster, victim)


async def voter_wiped(cluster: SimCluster) -> None:
    """A voter with a new disk starts together with some that were down while a topic was made."""
    await load(cluster)
    nodes = list(cluster.nodes)
    cluster.rng.shuffle(nodes)
    minority = (len(nodes) - 1) // 2
    stale, wiped, sound = nodes[:minority], nodes[minority], nodes[minority + 1 :]
    await bring_down(cluster, stale, "stopped")
    await cluster.make_topic("late", replicas=2)
    await pause(cluster, 0.5, 1.0)
    await bring_down(cluster, [wiped, *sound], cluster.rng.choice(("stopped", "killed")))
    damage_of(cluster).wipe(wiped)
    await staggered(cluster, [*stale, wiped], sound)


async def majority_rolled_back(cluster: SimCluster) -> None:
    """A majority of the voters is rolled back, and starts before the other voters."""
    await load(cluster)
    nodes = list(cluster.nodes)
    cluster.rng.shuffle(nodes)
    rolled_back, sound = nodes[: len(nodes) // 2 + 1], nodes[len(nodes) // 2 + 1 :]
    backups = await backup_at_clean_stop(cluster, rolled_back)
    await cluster.make_topic("late", replicas=3)
    await pause(cluster, 0.5, 1.0)
    await bring_down(cluster, nodes, "stopped")
    for node in rolled_back:
        path = node.directories[0]
        damage_of(cluster).restore(node, path, below(backups[node.id], path))
    await staggered(cluster, rolled_back, sound)


async def folders_swapped(cluster: SimCluster) -> None:
    """Two partition folders of one broker are exchanged."""
    _, victim = await one_or_all_down(cluster)
    damage = damage_of(cluster)
    folders = damage.folders(victim)
    if len(folders) < 2:
        raise StateNotReached
    damage.swap(victim, *cluster.rng.sample(folders, 2))
    await all_up(cluster, victim)


async def foreign_files(cluster: SimCluster) -> None:
    """Files and links that no broker made lie in a data directory."""
    roles, victim = await one_or_all_down(cluster)
    damage = damage_of(cluster)
    damage.litter(victim, folder_of(cluster, victim, roles.partition), cluster.rng)
    await all_up(cluster, victim)


async def single_metadata_flipped(cluster: SimCluster) -> None:
    """One bit of the metadata log of a broker that is a cluster of its own changes."""
    (node,) = cluster.nodes
    await until(lambda: node.broker is not None)
    await pause(cluster, 0.8, 1.5)
    await bring_down(cluster, [node], cluster.rng.choice(("stopped", "killed")))
    damage_of(cluster).flip_metadata(node, cluster.rng)
    damage_of(cluster).assess()
    await start(cluster, [node])


async def single_directory_rolled_back(cluster: SimCluster) -> None:
    """The directory with the metadata of a single broker is rolled back to before a topic was made."""
    (node,) = cluster.nodes
    await until(lambda: node.broker is not None)
    await bring_down(cluster, [node], "stopped")
    backup = damage_of(cluster).backup(node, "")
    node.boot()
    await until(lambda: node.broker is not None)
    for name in ("late", "later"):
        await cluster.make_topic(name, replicas=1)
    await pause(cluster, 0.8, 1.5)
    await bring_down(cluster, [node], cluster.rng.choice(("stopped", "killed")))
    home = node.directories[0]
    damage_of(cluster).restore(node, home, below(backup, home))
    damage_of(cluster).assess()
    await start(cluster, [node])


DIRECTED: Final[dict[str, Disaster]] = {
    disaster.__name__: disaster
    for disaster in (
        folder_removed,
        folder_rolled_back,
        top_segment_removed,
        directory_rolled_back,
        tail_lost,
        operator_gives_up,
        middle_segment_removed,
        first_segment_removed,
        log_start_forgotten,
        metadata_flipped,
        voter_wiped,
        majority_rolled_back,
        folders_swapped,
        foreign_files,
        single_metadata_flipped,
        single_directory_rolled_back,
    )
}
#: those of a broker that is a cluster of its own
SINGLE: Final = frozenset({"single_metadata_flipped", "single_directory_rolled_back"})
