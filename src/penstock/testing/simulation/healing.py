"""Self-healing in a simulated cluster: brokers stay away for long, and replicas are rebuilt elsewhere.

A course is a directed fault with brokers that heal themselves, after a delay of about a second.
`HealingInvariants` check every committed image and the true time for which brokers have been fenced in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from penstock.metadata.image import ClusterImage, Origin
from penstock.model.ids import TopicPartition
from penstock.testing.simulation.checkers import Violation
from penstock.testing.simulation.clients import Unanswered
from penstock.testing.simulation.cluster import SimCluster
from penstock.testing.simulation.cluster_roles import newest_image
from penstock.testing.simulation.node import Node
from penstock.testing.simulation.process import Process
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

__all__ = ["HEALING", "HealingInvariants", "MoveView", "healing_settings", "move_views"]

Course: TypeAlias = Callable[[SimCluster], Awaitable[None]]
DELAY_S: Final = 1.5
MOVES_MAX: Final = 2
#: how long a rebuild may go on after the broker that it replaces is back, while there is a controller
_CANCELLED_S: Final = 6.0
#: how long the rebuild of all replicas that can be rebuilt may take
_REBUILT_S: Final = 20.0
_GLANCE_S: Final = 0.05


def healing_settings(course: str) -> dict[str, str]:
    """Of all brokers, in a cluster that a course is played to."""
    settings = {
        "penstock.self.healing.enable": "true",
        "penstock.self.healing.delay.ms": str(round(DELAY_S * 1000)),
        "penstock.self.healing.partitions.max": str(MOVES_MAX),
        "penstock.balance.new.brokers": "true",
        "broker.session.timeout.ms": "800",
        "broker.heartbeat.interval.ms": "200",
    }
    if course == back_in_time.__name__:
        # No rebuild can finish, so each one that is not cancelled goes on for ever.
        settings |= {
            "penstock.balance.bytes.per.second": "1",
            "replica.fetch.max.bytes": "500",
            "penstock.balance.new.brokers": "false",
        }
    return settings


class MoveView(NamedTuple):
    """A partition's replicas, and the reassignment that is under way, if any."""

    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]
    isr: Sequence[int]
    origin: int

    @property
    def settled(self) -> list[int]:
        """The replicas without those that are on their way."""
        return [node for node in self.replicas if node not in self.adding]


class HealingInvariants:
    """Checks that self-healing breaks none of its rules."""

    def __init__(self, delay_s: float, moves_max: int) -> None:
        self._delay_s = delay_s
        self._moves_max = moves_max
        self._moves: dict[TopicPartition, MoveView] = {}
        #: since when brokers are fenced, and since when they are up
        self._fenced: dict[int, float] = {}
        self._up: dict[int, float] = {}

    def image_changed(
        self, moves: Mapping[TopicPartition, MoveView], fenced: Mapping[int, bool], now: float
    ) -> None:
        """There is a newer image: whether each registered broker is fenced, and all partitions."""
        for node, is_fenced in fenced.items():
            (self._up if is_fenced else self._fenced).pop(node, None)
            (self._fenced if is_fenced else self._up).setdefault(node, now)
        for name, move in moves.items():
            before = self._moves.get(name)
            if before is not None and before != move:
                self._changed(name, before, move, now)
        ours = [name for name, move in moves.items() if move.origin in (Origin.REBUILD, Origin.SHARE)]
        if len(ours) > self._moves_max:
            raise Violation("too many moves at once", f"{ours}")
        self._moves = dict(moves)

    def cluster_restarted(self, now: float) -> None:
        """No broker is gone for longer than the cluster is there."""
        self._fenced = dict.fromkeys(self._fenced, now)

    def time_passed(self, now: float) -> None:
        """All is well, and has been for a while: nothing may be rebuilt for a broker that is up."""
        for name, move in self._moves.items():
            back = [node for node in move.removing if now - self._up.get(node, now) > _CANCELLED_S]
            if move.origin == Origin.REBUILD and back:
                raise Violation("rebuild not cancelled", f"{name}: {move}, {back} are back")

    def _changed(self, name: TopicPartition, before: MoveView, now_is: MoveView, now: float) -> None:
        began = now_is.origin == Origin.REBUILD and before.origin != Origin.REBUILD
        if began and before.adding and before.origin == Origin.REQUEST:
            raise Violation("operator's move changed", f"{name}: {before}, now {now_is}")
        if began:
            self._began(name, before, now_is, now)
        if not now_is.adding and not now_is.removing:
            _check_replicas(name, before, now_is)

    def _began(self, name: TopicPartition, before: MoveView, rebuild: MoveView, now: float) -> None:
        for node in rebuild.removing:
            gone_s = now - self._fenced.get(node, now)
            if gone_s < self._delay_s:
                raise Violation("rebuilt too soon", f"{name}: {node} is gone for {gone_s:.3f} s")
        if len(self._up) < len(before.settled):
            raise Violation("rebuilt with too few brokers", f"{name}: {rebuild}, up are {sorted(self._up)}")
        if not set(before.isr) <= {node for node in rebuild.replicas if node not in rebuild.removing}:
            raise Violation("copy in sync given up", f"{name}: {before}, now {rebuild}")


def _check_replicas(name: TopicPartition, before: MoveView, after: MoveView) -> None:
    """A partition that is not being reassigned any more: a reassignment has ended, or was cancelled."""
    if len(after.replicas) != len(before.settled):
        raise Violation("number of replicas changed", f"{name}: {before}, now {after}")
    if not set(after.replicas) - set(before.settled) <= set(after.isr):
        raise Violation("copy given up before the new one is in sync", f"{name}: {before}, now {after}")


def move_views(image: ClusterImage) -> dict[TopicPartition, MoveView]:
    return {
        TopicPartition(topic.name, partition.index): MoveView(
            tuple(partition.replicas),
            tuple(partition.adding),
            tuple(partition.removing),
            tuple(partition.isr),
            partition.origin,
        )
        for topic in image.topics.values()
        for partition in topic.partitions.values()
    }


class _Watch:
    """Shows every image that is newer than all before to the invariants, after the step that applied it."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._before = cluster.loop.after_step
        self._offset = -1
        self.invariants = HealingInvariants(DELAY_S, MOVES_MAX)

    def after_step(self, process: Process) -> None:
        if self._before is not None:
            self._before(process)
        self.look()

    def look(self) -> None:
        image = newest_image(self._cluster.nodes)
        if image.offset > self._offset:
            self._offset = image.offset
            fenced = {broker.id: broker.fenced for broker in image.brokers.values()}
            self.invariants.image_changed(move_views(image), fenced, self._cluster.loop.time())


# -- courses


async def gone_for_good(cluster: SimCluster) -> None:
    """A broker is gone: all of its replicas are rebuilt, even if the controller changes meanwhile."""
    watch, node = await _begin(cluster)
    _end(cluster, node)
    if cluster.rng.random() < 0.5:
        await _pause(cluster, 0.1, 2.0)
        _bounce(cluster, _controller(cluster))
    await _rebuilt(cluster, [node])
    node.boot()
    await _watched(cluster, watch, 4.0)


async def back_in_time(cluster: SimCluster) -> None:
    """A broker is back before its replicas are rebuilt, or just as they are."""
    watch, node = await _begin(cluster)
    _end(cluster, node)
    await _until(lambda: bool(_rebuilds(cluster)), _REBUILT_S)
    await _pause(cluster, 0.0, 0.5)
    node.boot()
    await _watched(cluster, watch, _CANCELLED_S + 1.0)


async def flapping(cluster: SimCluster) -> None:
    """A broker stops again and again, each time for less than the delay."""
    watch, node = await _begin(cluster)
    for _ in range(3):
        node.kill()
        await _pause(cluster, 0.1, DELAY_S - 0.9)
        node.boot()
        await _pause(cluster, 0.5, 1.5)
    await _watched(cluster, watch, 1.0)


async def two_gone(cluster: SimCluster) -> None:
    """Two brokers are gone, one after the other, and come back in any order."""
    watch, first = await _begin(cluster)
    _end(cluster, first)
    await _pause(cluster, 0.0, DELAY_S)
    second = _victim(cluster)
    _end(cluster, second)
    await _pause(cluster, 0.5, 6.0)
    back = [first, second]
    cluster.rng.shuffle(back)
    for node in back:
        node.boot()
        await _pause(cluster, 0.1, 3.0)
    await _watched(cluster, watch, 3.0)


async def all_restart(cluster: SimCluster) -> None:
    """The whole cluster stops, and one broker starts late."""
    watch, late = await _begin(cluster)
    _end(cluster, late)
    await _pause(cluster, 0.0, 2.0)
    for node in cluster.nodes:
        node.kill()
    await _pause(cluster, 0.1, 2.0)
    watch.invariants.cluster_restarted(cluster.loop.time())
    for node in cluster.nodes:
        if node is not late:
            node.boot()
    await _pause(cluster, 0.5, 5.0)
    late.boot()
    await _watched(cluster, watch, 3.0)


async def moved_by_hand(cluster: SimCluster) -> None:
    """An operator moves the replicas of a broker that is gone; then another broker is gone."""
    watch, node = await _begin(cluster)
    _end(cluster, node)
    await _pause(cluster, 0.0, DELAY_S + 1)
    up = [each.id for each in cluster.nodes if each.is_up]
    name = cluster.rng.choice(cluster.partitions)
    target = cluster.rng.sample(up, 3)
    await cluster.admin.process.spawn(cluster.loop, _reassign(cluster, name, target))
    await _pause(cluster, 0.5, 4.0)
    node.boot()
    await _watched(cluster, watch, 3.0)


async def _reassign(cluster: SimCluster, name: TopicPartition, target: list[int]) -> None:
    """Request a reassignment once, and accept every outcome."""
    wanted = ReassignablePartition(partition_index=name.partition, replicas=target)
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(name=name.topic, partitions=[wanted])]
    )
    with suppress(Unanswered):
        await cluster.admin.send_to_any(ALTER_PARTITION_REASSIGNMENTS, request)
    cluster.note("operator", f"moves {name} to {target}")


async def too_few(cluster: SimCluster) -> None:
    """Of four replicas two are gone: three brokers are up, one of them without a replica."""
    await cluster.make_topic("wide", 4)
    watch, _ = await _begin(cluster)
    wide = newest_image(cluster.nodes).topics["wide"].partitions[0].replicas
    gone = cluster.rng.sample([node for node in cluster.nodes if node.id in wide], 2)
    for node in gone:
        _end(cluster, node)
    await _pause(cluster, 3 * DELAY_S, 4 * DELAY_S)
    for node in gone:
        node.boot()
    await _watched(cluster, watch, 1.0)


HEALING: Final[dict[str, Course]] = {
    course.__name__: course
    for course in (
        gone_for_good,
        back_in_time,
        flapping,
        two_gone,
        too_few,
        all_restart,
        moved_by_hand,
    )
}


async def _begin(cluster: SimCluster) -> tuple[_Watch, Node]:
    """Wait until all is well, and choose the broker that goes: one that has replicas."""
    await _until(lambda: _is_whole(cluster), _REBUILT_S)
    watch = _Watch(cluster)
    cluster.loop.after_step = watch.after_step
    watch.look()
    return watch, _victim(cluster)


def _victim(cluster: SimCluster) -> Node:
    image = newest_image(cluster.nodes)
    holders = [n for n in cluster.nodes if n.is_up and image.partitions_on(n.id)]
    return cluster.rng.choice(holders)


def _end(cluster: SimCluster, node: Node) -> None:
    cluster.rng.choice((node.kill, node.power_off, node.stop))()


def _bounce(cluster: SimCluster, node: Node | None) -> None:
    if node is not None:
        node.kill()
        cluster.loop.world_later(cluster.rng.uniform(0.1, 1.0), node.boot)


def _controller(cluster: SimCluster) -> Node | None:
    return next(
        (n for n in cluster.nodes if n.broker and n.broker.stages.cluster.node.controller.is_active), None
    )


def _is_whole(cluster: SimCluster) -> bool:
    image = newest_image(cluster.nodes)
    partitions = list(image.partitions)
    return (
        sum(broker.active for broker in image.brokers.values()) == len(cluster.nodes)
        and len(image.topics) > 0
        and all(set(p.isr) == set(p.replicas) and not p.reassigning for p in partitions)
    )


def _rebuilds(cluster: SimCluster) -> list[TopicPartition]:
    moves = move_views(newest_image(cluster.nodes))
    return [name for name, move in moves.items() if move.origin == Origin.REBUILD]


async def _rebuilt(cluster: SimCluster, gone: Sequence[Node]) -> None:
    """Wait until no replica is on a broker that is gone, if enough other brokers are up."""
    ids = {node.id for node in gone}

    def is_done() -> bool:
        image = newest_image(cluster.nodes)
        return not any(image.partitions_on(node) for node in ids)

    if not await _until(is_done, _REBUILT_S):
        moves = move_views(newest_image(cluster.nodes))
        left = {str(name): move for name, move in moves.items() if ids & set(move.replicas)}
        raise Violation("not rebuilt", f"after {_REBUILT_S:g} s on {sorted(ids)}: {left}")


async def _watched(cluster: SimCluster, watch: _Watch, seconds: float) -> None:
    end = cluster.loop.time() + cluster.rng.uniform(seconds, 2 * seconds)
    while cluster.loop.time() < end:
        watch.invariants.time_passed(cluster.loop.time())
        await asyncio.sleep(_GLANCE_S)


async def _pause(cluster: SimCluster, low_s: float, high_s: float) -> None:
    await asyncio.sleep(cluster.rng.uniform(low_s, max(low_s, high_s)))


async def _until(condition: Callable[[], bool], seconds: float) -> bool:
    """Wait for something; whether it came about in time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(_GLANCE_S)
    return True
