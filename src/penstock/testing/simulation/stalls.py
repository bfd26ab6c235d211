"""Stalls of whole processes for seconds: a controller that is starved, a machine that is suspended.

A course kills as many brokers as the quorum can lose, and holds up the controller, or all brokers together.
Then no other majority could have elected a leader meanwhile, and the brokers that live have done nothing
wrong. `StallInvariants` check that no living broker is fenced, that none leaves the ISR of a leader that was
held up, and that the quorum keeps its leader.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import StateNotReached, newest_image
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.process import Process

__all__ = ["STALLS", "StallInvariants"]

Course: TypeAlias = Callable[[SimCluster], Awaitable[None]]
_GLANCE_S: Final = 0.05
#: how long a cluster may take until all is well before a course
_PATIENCE_S: Final = 20.0
#: longer than the session of a broker, and than the timeouts of the quorum
_STALL_S: Final = (3.5, 8.0)
#: nodes of one machine do not stop and continue at the same moment
_APART_S: Final = 0.02
#: a broker that would be fenced wrongly is fenced within this time
_WATCHED_S: Final = 5.0


class StallInvariants:
    """Checks that a stall of the controller, or of all brokers, changes nothing for those that live."""

    def __init__(self, living: Sequence[int], epoch: int) -> None:
        """`epoch` is the quorum's; the brokers `living` are neither killed nor held up alone."""
        self._living = frozenset(living)
        self._epoch = epoch

    def looked(
        self, fenced: Mapping[int, bool], epoch: int, absent: Iterable[tuple[str, Collection[int]]] = ()
    ) -> None:
        """Take in which registered brokers are fenced in the newest image, and the newest epoch.

        `absent` are the partitions of leaders that are held up, with the replicas that are not in sync.
        """
        for name, replicas in absent:
            if gone := sorted(self._living & set(replicas)):
                raise Violation("in-sync replica removed", f"brokers {gone} of {name}, because of a stall")
        wronged = sorted(node for node in self._living if fenced.get(node))
        if wronged:
            raise Violation("living broker fenced", f"brokers {wronged}, because of a stall")
        if epoch != self._epoch:
            raise Violation("needless election", f"epoch {epoch} after a stall, it was {self._epoch}")


class _Watch:
    """Shows the newest image and epoch to the invariants after every step."""

    def __init__(self, cluster: SimCluster, living: Sequence[Node], held_up: Sequence[Node]) -> None:
        self._cluster = cluster
        self._held_up = {node.id for node in held_up}
        self._before = cluster.loop.after_step
        self._nodes = living
        self.invariants = StallInvariants([node.id for node in living], self._epoch())
        cluster.loop.after_step = self._after_step

    def end(self) -> None:
        self._cluster.loop.after_step = self._before

    def _epoch(self) -> int:
        return max(
            (n.broker.stages.cluster.node.quorum.state.epoch for n in self._nodes if n.broker is not None),
            default=0,
        )

    def _after_step(self, process: Process) -> None:
        if self._before is not None:
            self._before(process)
        image = newest_image(self._nodes)
        absent = [
            (f"{topic.name}-{partition.index}", set(partition.replicas) - set(partition.isr))
            for topic in image.topics.values()
            for partition in topic.partitions.values()
            if partition.leader in self._held_up
        ]
        self.invariants.looked({b.id: b.fenced for b in image.brokers.values()}, self._epoch(), absent)


async def controller_stalls(cluster: SimCluster) -> None:
    """As many brokers as the quorum can lose are killed, and the controller is held up at that moment."""
    controller, living = await _begin(cluster)
    await _stall(cluster, living, [controller])


async def all_stall(cluster: SimCluster) -> None:
    """All brokers are held up together, such as those of one machine; some were killed a moment before."""
    _, living = await _begin(cluster)
    await _stall(cluster, living, living)


STALLS: Final[dict[str, Course]] = {course.__name__: course for course in (controller_stalls, all_stall)}


async def _begin(cluster: SimCluster) -> tuple[Node, list[Node]]:
    """Wait until all is well, and kill some brokers. Returns the controller, and all brokers that live."""
    loop = cluster.loop
    deadline = loop.time() + _PATIENCE_S
    while (controller := _controller(cluster)) is None or not _is_whole(cluster):
        if loop.time() > deadline:
            raise StateNotReached
        await asyncio.sleep(_GLANCE_S)
    await asyncio.sleep(cluster.rng.uniform(0.0, 1.0))
    others = [node for node in cluster.nodes if node is not controller]
    killed = cluster.rng.sample(others, (len(cluster.nodes) - 1) // 2)
    for node in killed:
        node.kill()
    return controller, [node for node in cluster.nodes if node not in killed]


def _controller(cluster: SimCluster) -> Node | None:
    return next(
        (n for n in cluster.nodes if n.broker and n.broker.stages.cluster.node.controller.is_active), None
    )


def _is_whole(cluster: SimCluster) -> bool:
    """Returns true if all brokers are unfenced, and all replicas are in sync."""
    image = newest_image(cluster.nodes)
    up = [broker for broker in image.brokers.values() if not broker.fenced]
    partitions = [p for topic in image.topics.values() for p in topic.partitions.values()]
    return len(up) == len(cluster.nodes) and all(len(p.isr) == len(p.replicas) for p in partitions)


async def _stall(cluster: SimCluster, living: Sequence[Node], held_up: Sequence[Node]) -> None:
    watch, rng = _Watch(cluster, living, held_up), cluster.rng
    for node in held_up:
        cluster.loop.world_later(rng.uniform(0.0, _APART_S), node.pause)
    await asyncio.sleep(rng.uniform(*_STALL_S))
    for node in held_up:
        cluster.loop.world_later(rng.uniform(0.0, _APART_S), node.resume)
    await asyncio.sleep(_WATCHED_S)
    watch.end()
