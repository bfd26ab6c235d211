"""Faults: a schedule chooses them by name, and `heal` ends all of them.

Most come with their own end, some seconds later. A fault that meets a node in a state that it does not fit
(killing a dead one) does nothing; the schedule need not know.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Final, TypeAlias

from penstock.model.ids import OFFSETS_TOPIC, TopicPartition
from penstock.records.batch import HEADER_SIZE
from penstock.records.record import iter_batches
from penstock.storage.scrub import describe, sealed_segments
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import replica_on
from penstock.testing.simulation.network import Link
from penstock.testing.simulation.node import Node

__all__ = ["FAULTS", "OFFSETS_PARTITIONS", "Fault", "heal"]

Fault: TypeAlias = Callable[[SimCluster], None]
#: number of partitions of `__consumer_offsets`
OFFSETS_PARTITIONS: Final = 2
_SLOW_SYNC_S: Final = (0.05, 1.5)
_HEALTHY_SYNC_S: Final = (0.0001, 0.002)


def _node(cluster: SimCluster) -> Node:
    return cluster.rng.choice(cluster.nodes)


def _later(cluster: SimCluster, low_s: float, high_s: float, callback: Callable[[], None]) -> None:
    cluster.loop.world_later(cluster.rng.uniform(low_s, high_s), callback)


def kill(cluster: SimCluster) -> None:
    node = _node(cluster)
    node.kill()
    _later(cluster, 0.01, 1.0, node.boot)


def kill_in_write(cluster: SimCluster) -> None:
    node = _node(cluster)
    node.power_off_at(cluster.rng.randint(1, 40), only_killed=True)
    _later(cluster, 0.5, 2.0, node.boot)


def power_loss(cluster: SimCluster) -> None:
    node = _node(cluster)
    node.power_off()
    _later(cluster, 0.05, 2.0, node.boot)


def power_loss_in_write(cluster: SimCluster) -> None:
    node = _node(cluster)
    node.power_off_at(cluster.rng.randint(1, 40))
    _later(cluster, 0.5, 2.0, node.boot)


def stop(cluster: SimCluster) -> None:
    """An orderly restart."""
    node = _node(cluster)
    node.stop()
    _later(cluster, 0.5, 1.5, node.boot)


def pause(cluster: SimCluster) -> None:
    node = _node(cluster)
    node.pause()
    _later(cluster, 0.05, 3.0, node.resume)


def stall(cluster: SimCluster) -> None:
    """All brokers are held up together for seconds, as on a machine that is suspended, or only one is."""
    nodes = cluster.nodes if cluster.rng.random() < 0.5 else [_node(cluster)]
    lasts_s = cluster.rng.uniform(1.0, 6.0)
    for node in nodes:
        node.pause()
        cluster.loop.world_later(lasts_s + cluster.rng.uniform(0.0, 0.05), node.resume)


def disk_full(cluster: SimCluster) -> None:
    node = _node(cluster)
    node.disk.capacity = node.disk.used() + cluster.rng.randint(0, 2000)
    node.note(f"disk is full at {node.disk.capacity} bytes")

    def free() -> None:
        node.disk.capacity = None
        node.note("disk has space")

    # Sometimes long enough for other replicas to become leaders.
    _later(cluster, 0.1, 4.0, free)


def disk_slow(cluster: SimCluster) -> None:
    node = _node(cluster)
    node.sync_s = _SLOW_SYNC_S
    node.note("disk is slow")

    def quicken() -> None:
        node.sync_s = _HEALTHY_SYNC_S

    _later(cluster, 0.1, 2.0, quicken)


def disk_fails(cluster: SimCluster) -> None:
    """Syncs fail: the data directory goes offline until the machine is started again."""
    node = _node(cluster)
    node.disk.sync_error = errno.EIO
    node.note("disk fails")

    def replace() -> None:
        node.disk.sync_error = None
        node.power_off()
        node.boot()

    _later(cluster, 0.1, 1.0, replace)


def bit_rot(cluster: SimCluster) -> None:
    """Flip a bit in a sealed segment, always on the same machine: the other replicas must repair it."""
    node, rng = cluster.nodes[cluster.seed % len(cluster.nodes)], cluster.rng
    sealed = _sealed_segments(cluster, node)
    if not sealed or len(cluster.nodes) < 3:
        return
    path = rng.choice(sealed)
    # In the records of a batch. Why: the invariants read headers, so these must stay correct.
    batches = [each for each in iter_batches(node.files.read(path)) if each[1].size > HEADER_SIZE]
    if not batches:
        return
    start, header = rng.choice(batches)
    position = start + rng.randrange(HEADER_SIZE, header.size)
    node.flip_bit(path, position, rng.randrange(8))
    node.note(f"a bit of {path} flips at {position}")


def _sealed_segments(cluster: SimCluster, node: Node) -> list[str]:
    """Their files, whether or not a checkpoint says that they are on the disk."""
    if node.broker is None:
        return []
    partitions = list(cluster.partitions)
    if cluster.compaction:
        partitions += [TopicPartition(OFFSETS_TOPIC, index) for index in range(OFFSETS_PARTITIONS)]
    replicas = [replica_on(node, partition) for partition in partitions]
    return [
        sealed.path
        for replica in replicas
        if replica is not None
        for segment in sealed_segments(replica.log)
        if (sealed := describe(replica.log, segment)) is not None
    ]


def clock_jump(cluster: SimCluster) -> None:
    node = _node(cluster)
    by_ms = cluster.rng.choice((-1, 1)) * cluster.rng.randint(1, 3_600_000)
    node.clock.jump(by_ms)
    node.note(f"clock jumps by {by_ms} ms")


def partition(cluster: SimCluster) -> None:
    """Cut some hosts off from the rest, both ways."""
    one, other = _sides(cluster)
    cluster.loop.network.partition(one, other)
    cluster.note("network", f"{one} | {other}")
    _later(cluster, 0.1, 4.0, cluster.loop.network.heal)


def one_way(cluster: SimCluster) -> None:
    """As `partition`, but data in the other direction still arrives."""
    one, other = _sides(cluster)
    for a in one:
        for b in other:
            cluster.loop.network.cut(a, b)
    cluster.note("network", f"{one} -x-> {other}")
    _later(cluster, 0.1, 4.0, cluster.loop.network.heal)


def lost_sight(cluster: SimCluster) -> None:
    """Two brokers do not reach each other, perhaps in one direction only; all others reach both."""
    if len(cluster.nodes) > 1:
        one, other = cluster.rng.sample([node.name for node in cluster.nodes], 2)
        cluster.loop.network.cut(one, other)
        if cluster.rng.random() < 0.5:
            cluster.loop.network.cut(other, one)
        cluster.note("network", f"{one} loses sight of {other}")
        _later(cluster, 0.1, 5.0, cluster.loop.network.heal)


def slow_link(cluster: SimCluster) -> None:
    one, other = _sides(cluster)
    link = Link(latency_s=(0.05, 0.4), bytes_per_s=100_000, loss=0.05)
    for a in one:
        for b in other:
            cluster.loop.network.set_link(a, b, link)
            cluster.loop.network.set_link(b, a, link)
    cluster.note("network", f"{one} ... {other}")
    _later(cluster, 0.1, 4.0, cluster.loop.network.heal)


def resets(cluster: SimCluster) -> None:
    count = cluster.loop.network.reset_some(0.5)
    cluster.note("network", f"resets {count} connections")


def _sides(cluster: SimCluster) -> tuple[list[str], list[str]]:
    """Two sets of hosts, neither empty."""
    hosts = sorted({process.host for process in cluster.loop.processes})
    cluster.rng.shuffle(hosts)
    size = cluster.rng.randint(1, len(hosts) - 1)
    return sorted(hosts[:size]), sorted(hosts[size:])


FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        kill,
        kill_in_write,
        power_loss,
        power_loss_in_write,
        stop,
        pause,
        stall,
        disk_full,
        disk_slow,
        disk_fails,
        bit_rot,
        clock_jump,
        partition,
        one_way,
        lost_sight,
        slow_link,
        resets,
    )
}


def heal(cluster: SimCluster) -> None:
    """End every fault: from here on everything has to come to a good end."""
    cluster.note("scenario", "heals")
    cluster.loop.network.heal()
    cluster.loop.network.link = Link()
    for client, _ in cluster.workers:
        client.process.resume()
    for node in cluster.nodes:
        node.disk.capacity = None
        node.disk.crash_at = None
        node.disk.descriptor_shortage = 0.0
        node.sync_s = _HEALTHY_SYNC_S
        node.supervised = True
        node.resume()
        if node.disk.sync_error is not None:
            node.disk.sync_error = None
            node.power_off()
        node.boot()
