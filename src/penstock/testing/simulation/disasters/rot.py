"""Bits that change in segments, in the newest one and in headers of batches, too; and no descriptors left."""

from __future__ import annotations

from typing import Final

from penstock.records.batch import HEADER_SIZE
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import StateNotReached
from penstock.testing.simulation.disasters import copies, tampering
from penstock.testing.simulation.disasters.steps import (
    DOWN,
    Disaster,
    all_up,
    bring_down,
    damage_of,
    folder_of,
    load,
    one_or_all_down,
    pause,
    start,
)
from penstock.testing.simulation.node import Node

__all__ = ["ROT", "flip_somewhere"]

_BASE_OFFSET_END: Final = 8
#: where a batch has its base offset, length, leader epoch, magic and checksum, and the rest of its header
_FIELDS: Final = ((0, _BASE_OFFSET_END), (8, 12), (12, 16), (16, 17), (17, 21), (21, HEADER_SIZE))
#: behind the leader epoch of a batch
_EPOCH_END: Final = 16
_BATCHES_MIN: Final = 3
#: the shares of attempts to open a file that fail while descriptors are short
_SHORTAGES: Final = (0.1, 0.5, 0.9)


async def newest_segment_flipped(cluster: SimCluster) -> None:
    """A bit of a batch in the newest segment of one replica changes: in its header or in its records."""
    roles, victim = await one_or_all_down(cluster, cluster.rng.choice(DOWN))
    segments = damage_of(cluster).segments(victim, folder_of(cluster, victim, roles.partition))
    flip_somewhere(cluster, victim, segments[-1], 0)
    await all_up(cluster, victim)


async def header_flipped(cluster: SimCluster) -> None:
    """A bit of the header of a batch changes, in any segment of one replica."""
    roles, victim = await one_or_all_down(cluster, cluster.rng.choice(DOWN))
    segments = damage_of(cluster).segments(victim, folder_of(cluster, victim, roles.partition))
    flip_somewhere(cluster, victim, cluster.rng.choice(segments), *cluster.rng.choice(_FIELDS))
    await all_up(cluster, victim)


async def epoch_raised(cluster: SimCluster) -> None:
    """All brokers are killed; one loses batches, and the leader epoch of its last batch has one bit more."""
    roles = await load(cluster)
    victim = cluster.rng.choice([roles.leader, *roles.followers])
    await bring_down(cluster, [node for node in cluster.nodes if node is not victim], "killed")
    await bring_down(cluster, [victim], "killed")
    damage = damage_of(cluster)
    path = damage.segments(victim, folder_of(cluster, victim, roles.partition))[-1]
    batches = list(copies.intact_batches(tampering.content(victim.disk, path)))
    if len(batches) < _BATCHES_MIN:
        raise StateNotReached
    kept = cluster.rng.randrange(1, len(batches))
    damage.cut(victim, path, batches[kept][0])
    start, header = batches[kept - 1]
    lowest = (~header.leader_epoch & (header.leader_epoch + 1)).bit_length() - 1
    damage.flip(victim, path, start + _EPOCH_END - 1 - lowest // 8, lowest % 8)
    damage.assess()
    await all_up(cluster, victim)


def flip_somewhere(cluster: SimCluster, node: Node, path: str, begin: int, end: int | None = None) -> None:
    """Invert a bit of some intact batch of a segment, in its bytes from `begin` to before `end`.

    No checksum covers a batch's base offset. The first read of it, after a start, finds a changed one.
    """
    rng = cluster.rng
    intact = copies.intact_batches(tampering.content(node.disk, path))
    batches = [each for each in intact if each[1].size > begin]
    if not batches:
        raise StateNotReached
    start, header = rng.choice(batches)
    at = rng.randrange(begin, header.size if end is None else min(end, header.size))
    damage = damage_of(cluster)
    damage.flip(node, path, start + at, rng.randrange(8))
    if at < _BASE_OFFSET_END:
        for folder in damage.folders(node, path.rpartition("/")[0]):
            cluster.checker.excuse_reads(folder.partition)


async def no_descriptors(cluster: SimCluster) -> None:
    """One broker is short of file descriptors for a while, from its start or while it runs."""
    rng = cluster.rng
    roles = await load(cluster)
    victim = rng.choice([roles.leader, *roles.followers])
    restarts = rng.random() < 0.7
    if restarts:
        await bring_down(cluster, [victim], rng.choice(DOWN))
    victim.disk.descriptor_shortage = rng.choice(_SHORTAGES)
    victim.note(f"disaster: {victim.disk.descriptor_shortage:.0%} of opens find no descriptor")
    damage_of(cluster).assess()
    if restarts:
        await start(cluster, [victim])
    for _ in range(rng.randint(2, 5)):
        await pause(cluster, 0.5, 1.0)
        _check_online(victim)
    victim.disk.descriptor_shortage = 0.0
    victim.note("disaster: descriptors are free again")


def _check_online(node: Node) -> None:
    """A shortage of descriptors is no failure of a disk."""
    for directory in [] if node.broker is None else node.broker.stages.storage.partitions.directories:
        if directory.health.offline is not None:
            raise Violation("directory offline", f"{node.name}: {directory.health.offline}")


ROT: Final[dict[str, Disaster]] = {
    disaster.__name__: disaster
    for disaster in (newest_segment_flipped, header_flipped, epoch_raised, no_descriptors)
}
