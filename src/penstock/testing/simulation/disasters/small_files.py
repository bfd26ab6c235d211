"""Disasters to the files beside the segments: identities, votes, checkpoints, manifests and indexes.

None of them holds a record, so no replica counts as tampered with: after a restart, or after what the runbook
has the operator do, everything has to be as if the files were there.
"""

from __future__ import annotations

from typing import Final

from penstock.broker.node.metadata_copies import read_copy
from penstock.broker.node.quorum_recovery import Source, recover, rejoin
from penstock.storage.segment_files import LOG
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import StateNotReached
from penstock.testing.simulation.disasters import copies, tampering
from penstock.testing.simulation.disasters.steps import (
    DOWN,
    Disaster,
    all_up,
    bring_down,
    damage_of,
    load,
    one_or_all_down,
    pause,
    staggered,
    start,
)
from penstock.testing.simulation.node import Node

__all__ = ["SMALL_FILES", "WAYS", "spoil_some"]

_META: Final = "meta.json"
_ELECTION_S: Final = 10.0
_GLANCE_S: Final = 0.0005
#: the damage to a file
WAYS: Final = ("removed", "emptied", "flipped")
#: in a data directory
_IN_DIRECTORY: Final = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "clean-shutdown",
)
#: in a partition folder, or in that of its topic
_BESIDE_SEGMENTS: Final = (
    "leader-epoch-checkpoint",
    "cleaner-offset-checkpoint",
    "partition.metadata",
    "topic.metadata",
    ".index",
    ".timeindex",
    ".txnindex",
    ".snapshot",
    ".seal",
)


async def checkpoints_lost(cluster: SimCluster) -> None:
    """Checkpoints, manifests, indexes and producer snapshots of one broker are removed or damaged."""
    _, victim = await one_or_all_down(cluster, cluster.rng.choice(DOWN))
    spoil_some(cluster, victim)
    await all_up(cluster, victim)


async def identity_lost(cluster: SimCluster) -> None:
    """A `meta.json` of one broker is removed or damaged; an operator restores it if the broker misses it."""
    rng = cluster.rng
    _, victim = await one_or_all_down(cluster, rng.choice(DOWN))
    paths = [f"{directory}/{_META}" for directory in victim.directories]
    kept = {path: tampering.content(victim.disk, path) for path in paths}
    how = rng.choice(WAYS)
    damage_of(cluster).spoil(victim, rng.choice(paths), how)
    await all_up(cluster, victim)
    # A broker with one data directory makes itself another `meta.json`.
    if len(paths) > 1 or how != "removed":
        await pause(cluster, 1.0, 3.0)
        await bring_down(cluster, [victim], rng.choice(DOWN))
        victim.note("disaster: an operator restores meta.json")
        for path, content in kept.items():
            tampering.write(victim.disk, path, content)
        await start(cluster, [victim])


async def votes_lost(cluster: SimCluster) -> None:
    """`quorum-state` is removed or damaged on less than half of the voters."""
    rng = cluster.rng
    _, victim = await one_or_all_down(cluster, rng.choice(DOWN))
    others = [node for node in cluster.nodes if node is not victim and not node.is_up]
    minority = (len(cluster.nodes) - 1) // 2
    for node in [victim, *others][: rng.randint(1, minority)]:
        damage_of(cluster).spoil_vote(node, rng.choice(WAYS))
    await all_up(cluster, victim)


async def votes_rolled_back(cluster: SimCluster) -> None:
    """`quorum-state` is older than the log, removed or damaged on any number of voters; all are there."""
    rng, damage = cluster.rng, damage_of(cluster)
    await load(cluster)
    order = list(cluster.nodes)
    older: dict[Node, bytes] = {}
    for how in ("killed", rng.choice(DOWN)):
        await bring_down(cluster, order, how)
        if not older:
            older = {node: damage.vote(node) for node in order}
            await start(cluster, order)
            await load(cluster)
    for node in rng.sample(order, rng.randint(1, len(order))):
        damage.forget_vote(node, rng.choice(WAYS), older[node] if rng.random() < 0.6 else None)
    rng.shuffle(order)
    await staggered(cluster, order[:-1], order[-1:])


async def vote_forgotten(cluster: SimCluster) -> None:
    """Voters are killed right after they have voted, lose `quorum-state`, and meet another candidate."""
    await load(cluster)
    nodes = list(cluster.nodes)
    leader = next(
        (node for node in nodes if node.broker and node.broker.stages.cluster.node.controller.is_active), None
    )
    if leader is None:
        raise StateNotReached
    # Of three, only the leader is left to know nothing of the next epoch.
    apart = leader if len(nodes) < 5 else cluster.rng.choice([node for node in nodes if node is not leader])
    for node in {apart: None, leader: None}:
        await bring_down(cluster, [node], "killed")
    voters = await _voters(cluster, (len(nodes) - 1) // 2)
    for node in nodes:
        node.kill()
        node.mount()
    for node in voters:
        damage_of(cluster).spoil_vote(node, cluster.rng.choice(WAYS))
    first = [apart, *voters]
    await staggered(cluster, first, [node for node in nodes if node not in first])


async def _voters(cluster: SimCluster, count: int) -> list[Node]:
    """Nodes whose votes for another node are on their disks, while no record of that epoch is."""
    deadline = cluster.loop.time() + _ELECTION_S
    while cluster.loop.time() < deadline:
        found = [node for node in cluster.nodes if _has_just_voted(node)]
        if len(found) >= count:
            return found[:count]
        await pause(cluster, _GLANCE_S, _GLANCE_S)
    raise StateNotReached


def _has_just_voted(node: Node) -> bool:
    if node.broker is None or node.broker.stages.cluster.node.quorum.is_saving:
        return False
    raft = node.broker.stages.cluster.node.quorum.node.quorum
    voted = raft.state.voted
    return voted is not None and voted.id != node.id and raft.epoch > raft.log.last_epoch


async def quorum_recovered(cluster: SimCluster) -> None:
    """All voters but one lose their disks; an operator recovers the quorum."""
    rng, damage = cluster.rng, damage_of(cluster)
    await load(cluster)
    order = list(cluster.nodes)
    rng.shuffle(order)
    await bring_down(cluster, order, rng.choice(DOWN))
    for node in order[1:]:
        damage.wipe(node)
    chosen = _recover(cluster, order[:1])
    damage.assess()
    await start(cluster, [chosen])
    await pause(cluster, 0.5, 2.0)
    await start(cluster, [node for node in order if node is not chosen])


async def metadata_damaged_everywhere(cluster: SimCluster) -> None:
    """One bit of each voter's metadata log is flipped, each in another record; an operator merges them."""
    rng, damage = cluster.rng, damage_of(cluster)
    await load(cluster)
    order = list(cluster.nodes)
    rng.shuffle(order)
    await bring_down(cluster, order, rng.choice(DOWN))
    end = max(copies.end_offset(node.disk, damage.metadata_path(node)) for node in order)
    logs = [read_copy(node.disk, node.id, damage.metadata_path(node)).pieces for node in order]
    common = sorted(set.intersection(*map(set, logs)))
    if len(common) < len(order):
        raise StateNotReached
    for node, offset in zip(order, rng.sample(common, len(order)), strict=True):
        _flip_batch(cluster, node, offset)
    if rng.random() < 0.5:
        # The brokers move their logs to the quarantine, and wait.
        await start(cluster, order)
        await pause(cluster, 2.0, 5.0)
        await bring_down(cluster, order, "killed")
    chosen, *others = order
    chosen.note("disaster: an operator merges the metadata of all voters here")
    sources = [Source(node.disk, node.directories) for node in others]
    recover(chosen.disk, chosen.directories, chosen.clock, chosen.rng, others=sources)
    chosen.disk.settle()
    for node in others:
        rejoin(node.disk, node.directories, node.rng)
        node.disk.settle()
    damage.recovered(end)
    damage.assess()
    await start(cluster, [chosen])
    await pause(cluster, 0.5, 2.0)
    await start(cluster, others)


def _flip_batch(cluster: SimCluster, node: Node, offset: int) -> None:
    """Invert a bit of the batch at `offset` of a node's metadata log."""
    path = damage_of(cluster).metadata_path(node)
    pieces = read_copy(node.disk, node.id, path).pieces
    names = [name for name in node.disk.listdir(path) if name.endswith(LOG)]
    name = max(name for name in names if int(name[: -len(LOG)]) <= offset)
    before = [p.data for p in pieces.values() if int(name[: -len(LOG)]) <= p.offset < offset]
    position = sum(map(len, before)) + cluster.rng.randrange(len(pieces[offset].data))
    damage_of(cluster).flip(node, f"{path}/{name}", position, cluster.rng.randrange(8))


def _recover(cluster: SimCluster, nodes: list[Node]) -> Node:
    """Follow the runbook for a quorum that lost its majority permanently; returns the only voter."""
    damage = damage_of(cluster)
    chosen = max(nodes, key=lambda node: copies.last_batch(node.disk, damage.metadata_path(node)))
    end = copies.end_offset(chosen.disk, damage.metadata_path(chosen))
    chosen.note(f"disaster: an operator recovers the quorum from here, up to offset {end}")
    gone = [node.id for node in cluster.nodes if node not in nodes]
    recover(chosen.disk, chosen.directories, chosen.clock, chosen.rng, without=gone)
    chosen.disk.settle()
    for node in nodes:
        if node is not chosen:
            node.note("disaster: an operator has the node rejoin")
            rejoin(node.disk, node.directories, node.rng)
            node.disk.settle()
    damage.recovered(end)
    return chosen


def spoil_some(cluster: SimCluster, node: Node) -> None:
    """Remove or damage a few files that are derived from logs, or all of one name."""
    rng, found = cluster.rng, _derived_files(node)
    if rng.random() < 0.5:
        chosen = rng.sample(found, min(len(found), rng.randint(1, 4)))
    else:
        suffix = rng.choice((*_IN_DIRECTORY, *_BESIDE_SEGMENTS))
        chosen = [path for path in found if path.endswith(suffix)]
    for path in chosen:
        damage_of(cluster).spoil(node, path, rng.choice(WAYS))


def _derived_files(node: Node) -> list[str]:
    """Paths of files that say something about logs."""
    found = [
        f"{directory}/{name}"
        for directory in node.directories
        for name in _IN_DIRECTORY
        if node.disk.exists(f"{directory}/{name}")
    ]
    folders = tampering.folders(node.disk, node.directories)
    for path in dict.fromkeys(path for folder in folders for path in (folder.path, folder.topic_path)):
        found += [f"{path}/{name}" for name in node.disk.listdir(path) if name.endswith(_BESIDE_SEGMENTS)]
    return found


SMALL_FILES: Final[dict[str, Disaster]] = {
    disaster.__name__: disaster
    for disaster in (
        checkpoints_lost,
        identity_lost,
        votes_lost,
        votes_rolled_back,
        vote_forgotten,
        quorum_recovered,
        metadata_damaged_everywhere,
    )
}
