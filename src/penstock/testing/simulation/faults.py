"""What goes wrong: named faults that a schedule draws, and the end of all of them.

Most come with their own end, some seconds later. A fault that meets a node in a state that it does not fit
(killing a dead one) does nothing; the schedule need not know.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from penstock.model.ids import OFFSETS_TOPIC, TopicPartition
from penstock.records.batch import HEADER_SIZE
from penstock.records.record import iter_batches
from penstock.storage.scrub import describe, sealed_segments
from penstock.testing.simulation.cast import replica_on
from penstock.testing.simulation.network import Link

if TYPE_CHECKING:
    from penstock.testing.simulation.node import Node
    from penstock.testing.simulation.scenario import Simulation

__all__ = ["FAULTS", "OFFSETS_PARTITIONS", "Fault", "heal"]

Fault: TypeAlias = Callable[["Simulation"], None]
#: that have what groups store
OFFSETS_PARTITIONS: Final = 2
_SLOW_SYNC_S: Final = (0.05, 1.5)
_HEALTHY_SYNC_S: Final = (0.0001, 0.002)


def _node(simulation: Simulation) -> Node:
    return simulation.rng.choice(simulation.nodes)


def _later(simulation: Simulation, low_s: float, high_s: float, callback: Callable[[], None]) -> None:
    simulation.loop.world_later(simulation.rng.uniform(low_s, high_s), callback)


def kill(simulation: Simulation) -> None:
    node = _node(simulation)
    node.kill()
    _later(simulation, 0.01, 1.0, node.boot)


def kill_in_write(simulation: Simulation) -> None:
    node = _node(simulation)
    node.power_off_at(simulation.rng.randint(1, 40), only_killed=True)
    _later(simulation, 0.5, 2.0, node.boot)


def power_loss(simulation: Simulation) -> None:
    node = _node(simulation)
    node.power_off()
    _later(simulation, 0.05, 2.0, node.boot)


def power_loss_in_write(simulation: Simulation) -> None:
    node = _node(simulation)
    node.power_off_at(simulation.rng.randint(1, 40))
    _later(simulation, 0.5, 2.0, node.boot)


def stop(simulation: Simulation) -> None:
    """An orderly restart."""
    node = _node(simulation)
    node.stop()
    _later(simulation, 0.5, 1.5, node.boot)


def pause(simulation: Simulation) -> None:
    node = _node(simulation)
    node.pause()
    _later(simulation, 0.05, 3.0, node.resume)


def disk_full(simulation: Simulation) -> None:
    node = _node(simulation)
    node.disk.capacity = node.disk.used() + simulation.rng.randint(0, 2000)
    node.note(f"disk is full at {node.disk.capacity} bytes")

    def free() -> None:
        node.disk.capacity = None
        node.note("disk has space")

    # Long enough, now and then, for others to take over.
    _later(simulation, 0.1, 4.0, free)


def disk_slow(simulation: Simulation) -> None:
    node = _node(simulation)
    node.sync_s = _SLOW_SYNC_S
    node.note("disk is slow")

    def quicken() -> None:
        node.sync_s = _HEALTHY_SYNC_S

    _later(simulation, 0.1, 2.0, quicken)


def disk_fails(simulation: Simulation) -> None:
    """Syncs fail: the data directory goes offline until the machine is started again."""
    node = _node(simulation)
    node.disk.sync_error = errno.EIO
    node.note("disk fails")

    def replace() -> None:
        node.disk.sync_error = None
        node.power_off()
        node.boot()

    _later(simulation, 0.1, 1.0, replace)


def bit_rot(simulation: Simulation) -> None:
    """A bit changes in a sealed segment, always of the same machine: what the others have has to mend it."""
    node, rng = simulation.nodes[simulation.seed % len(simulation.nodes)], simulation.rng
    sealed = _sealed_segments(simulation, node)
    if not sealed or len(simulation.nodes) < 3:
        return
    path = rng.choice(sealed)
    # In a batch's records: what invariants are checked by is the headers, whose checksums cover the rest.
    batches = [each for each in iter_batches(node.disk.read(path)) if each[1].size > HEADER_SIZE]
    if not batches:
        return
    start, header = rng.choice(batches)
    position = start + rng.randrange(HEADER_SIZE, header.size)
    node.disk.flip_bit(path, position, rng.randrange(8))
    node.note(f"a bit of {path} flips at {position}")


def _sealed_segments(simulation: Simulation, node: Node) -> list[str]:
    """Their files, whether or not a checkpoint says that they are on the disk."""
    if node.broker is None:
        return []
    partitions = list(simulation.partitions)
    if simulation.options.compaction:
        partitions += [TopicPartition(OFFSETS_TOPIC, index) for index in range(OFFSETS_PARTITIONS)]
    replicas = [replica_on(node, partition) for partition in partitions]
    return [
        sealed.path
        for replica in replicas
        if replica is not None
        for segment in sealed_segments(replica.log)
        if (sealed := describe(replica.log, segment)) is not None
    ]


def clock_jump(simulation: Simulation) -> None:
    node = _node(simulation)
    by_ms = simulation.rng.choice((-1, 1)) * simulation.rng.randint(1, 3_600_000)
    node.clock.jump(by_ms)
    node.note(f"clock jumps by {by_ms} ms")


def partition(simulation: Simulation) -> None:
    """Cut some hosts off from the rest, both ways."""
    one, other = _sides(simulation)
    simulation.loop.network.partition(one, other)
    simulation.note("network", f"{one} | {other}")
    _later(simulation, 0.1, 4.0, simulation.loop.network.heal)


def one_way(simulation: Simulation) -> None:
    """As `partition`, but what the other side sends still arrives."""
    one, other = _sides(simulation)
    for a in one:
        for b in other:
            simulation.loop.network.cut(a, b)
    simulation.note("network", f"{one} -x-> {other}")
    _later(simulation, 0.1, 4.0, simulation.loop.network.heal)


def lost_sight(simulation: Simulation) -> None:
    """Two brokers do not reach each other, perhaps in one direction only; everybody else reaches both."""
    if len(simulation.nodes) > 1:
        one, other = simulation.rng.sample([node.name for node in simulation.nodes], 2)
        simulation.loop.network.cut(one, other)
        if simulation.rng.random() < 0.5:
            simulation.loop.network.cut(other, one)
        simulation.note("network", f"{one} loses sight of {other}")
        _later(simulation, 0.1, 5.0, simulation.loop.network.heal)


def slow_link(simulation: Simulation) -> None:
    one, other = _sides(simulation)
    link = Link(latency_s=(0.05, 0.4), bytes_per_s=100_000, loss=0.05)
    for a in one:
        for b in other:
            simulation.loop.network.set_link(a, b, link)
            simulation.loop.network.set_link(b, a, link)
    simulation.note("network", f"{one} ... {other}")
    _later(simulation, 0.1, 4.0, simulation.loop.network.heal)


def resets(simulation: Simulation) -> None:
    count = simulation.loop.network.reset_some(0.5)
    simulation.note("network", f"resets {count} connections")


def _sides(simulation: Simulation) -> tuple[list[str], list[str]]:
    """Two sets of hosts, neither empty."""
    hosts = sorted({process.host for process in simulation.loop.processes})
    simulation.rng.shuffle(hosts)
    size = simulation.rng.randint(1, len(hosts) - 1)
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


def heal(simulation: Simulation) -> None:
    """End every fault: from here on everything has to come to a good end."""
    simulation.note("scenario", "heals")
    simulation.loop.network.heal()
    simulation.loop.network.link = Link()
    for client, _ in simulation.workers:
        client.process.resume()
    for node in simulation.nodes:
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
