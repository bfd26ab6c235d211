"""A plan that evens out the brokers' load with few moves: after brokers were added, before one goes, by load.

A replica counts as one, plus its load relative to the mean, so numbers decide in an idle cluster and load in
a busy one. Brokers above the mean give to those below it, until neither would gain; nothing else moves: a new
broker among n receives about 1/n of the replicas. Rendezvous scores say which. No move puts replicas of a
partition closer together, and replicas that a user has assigned to one `penstock.machine` are moved apart
where there is another machine. Then the order of replicas is changed, which moves no data, where the
preferred leaders are uneven. Brokers that are down keep what they have; they may come back.

A plan for a cluster is made in slices, between which the image may change. A move names the replicas that it
was planned for, so a caller can tell whether it still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop
from itertools import count
from typing import NamedTuple

from penstock.metadata.image import BrokerImage, ClusterImage, PartitionImage
from penstock.metadata.placement import (
    is_no_closer,
    may_receive,
    rendezvous_score,
    shares_machine,
)
from penstock.model.ids import TopicPartition
from penstock.model.steps import Steps, at_once, is_slice_over, slices

__all__ = ["Move", "Planned", "plan_evacuation", "plan_rebalance", "rebalance_steps"]


class Move(NamedTuple):
    """A partition and the replicas that it should have, the preferred leader first."""

    partition: TopicPartition
    replicas: list[int]


class Planned(NamedTuple):
    """A move, and the replicas that the partition had when it was planned."""

    move: Move
    before: Sequence[int]


def plan_rebalance(
    image: ClusterImage,
    loads: Mapping[TopicPartition, float],
    *,
    leaving: Collection[int] = (),
    excluded: Collection[int] = (),
    tolerance: float = 0.1,
) -> list[Move]:
    """As `rebalance_steps`, in one go."""
    steps = rebalance_steps(image, loads, leaving=leaving, excluded=excluded, tolerance=tolerance)
    return [planned.move for planned in at_once(steps)]


def rebalance_steps(
    image: ClusterImage,
    loads: Mapping[TopicPartition, float],
    *,
    leaving: Collection[int] = (),
    excluded: Collection[int] = (),
    tolerance: float = 0.1,
) -> Steps[list[Planned]]:
    """`loads` in any unit (bytes per second); brokers that are `leaving` end up empty if others have room.

    A broker within `tolerance` of the mean is left alone, unless it can help one that is not. Partitions that
    are being reassigned are not touched. Brokers that are `excluded` keep what they have.
    """
    plan = _Plan(image, {*leaving, *excluded}, tolerance)
    if not plan.receivers:
        return []
    staying = image.brokers.keys() - set(leaving)
    yield from plan.place_all(image, loads)
    yield from plan.evacuate(lambda node: node not in staying)
    yield from plan.separate()
    yield from plan.even_out()
    yield from plan.spread_leaders()
    return (yield from plan.moves())


def plan_evacuation(
    image: ClusterImage,
    partitions: Iterable[PartitionImage],
    leaving: Collection[int],
    *,
    excluded: Collection[int] = (),
) -> list[Move]:
    """Replace the replicas of `partitions` on the brokers that are `leaving`, and move nothing else.

    A replica stays where no broker is left for it. Brokers that are `excluded` receive nothing.
    """
    plan = _Plan(image, {*leaving, *excluded}, 0.0)
    plan.place(image, partitions)
    at_once(plan.evacuate(lambda node: node in leaving))
    return [planned.move for planned in at_once(plan.moves())]


class _Placed:
    """A partition in the plan: `nodes` is what its replicas shall be."""

    __slots__ = ("before", "image", "moved", "name", "nodes", "weight")

    def __init__(self, image: PartitionImage, name: TopicPartition, weight: float) -> None:
        self.image = image
        self.name = name
        self.weight = weight
        self.before = tuple(image.replicas)
        self.nodes = list(image.replicas)
        #: whether a replica of it moves already for the sake of balance
        self.moved = False


class _Candidate(NamedTuple):
    """A replica that could move; the lowest one is the best."""

    moved: bool
    score: int
    name: TopicPartition
    placed: _Placed


class _Plan:
    def __init__(self, image: ClusterImage, excluded: Collection[int], tolerance: float) -> None:
        """Brokers that are `excluded` receive nothing."""
        self._brokers = dict(image.brokers)
        self._tolerance = tolerance
        self.receivers = {
            broker.id: broker
            for broker in sorted(image.brokers.values(), key=lambda b: b.id)
            if may_receive(broker) and broker.id not in excluded
        }
        self.placed: list[_Placed] = []
        #: what each broker will hold once every reassignment that is under way has ended
        self._carried = dict.fromkeys(self.receivers, 0.0)

    def place(self, image: ClusterImage, partitions: Iterable[PartitionImage]) -> None:
        """Let some of the partitions move, all with the same weight."""
        for node in self._carried:
            self._carried[node] = float(len(image.partitions_on(node)))
        for partition in image.reassigning.values():
            for node in self._carried.keys() & set(partition.removing):
                self._carried[node] -= 1.0
        for partition in partitions:
            if not partition.reassigning:
                name = TopicPartition(image.topics_by_id[partition.topic_id].name, partition.index)
                self.placed.append(_Placed(partition, name, 1.0))

    def place_all(self, image: ClusterImage, loads: Mapping[TopicPartition, float]) -> Steps[None]:
        """Let all partitions move; `loads` are relative to their mean."""
        mean = sum(loads.values()) / max(1, len(loads)) or 1.0
        for some in slices(_partitions(image)):
            for name, partition in some:
                if partition.reassigning:
                    self._carry(set(partition.replicas).difference(partition.removing), 1.0)
                    continue
                placed = _Placed(partition, name, 1.0 + loads.get(name, 0.0) / mean)
                self._carry(placed.nodes, placed.weight)
                self.placed.append(placed)
            yield

    def _carry(self, nodes: Iterable[int], weight: float) -> None:
        for node in nodes:
            if node in self._carried:
                self._carried[node] += weight

    def moves(self) -> Steps[list[Planned]]:
        """The moves that can be requested: not while a replica is on an unregistered broker."""
        found = []
        for some in slices(self.placed):
            for placed in some:
                if tuple(placed.nodes) != placed.before and self._brokers.keys() >= set(placed.nodes):
                    found.append(Planned(Move(placed.name, placed.nodes), placed.before))
            yield
        return found

    def evacuate(self, leaves: Callable[[int], bool]) -> Steps[None]:
        for some in slices(self.placed):
            for placed in some:
                for position, node in enumerate(placed.nodes):
                    if leaves(node):
                        self._replace(placed, position)
            yield

    def separate(self) -> Steps[None]:
        """Move replicas away from machines that hold another one of their partition, the last ones first."""
        for some in slices(self.placed):
            for placed in some:
                self._separate(placed)
            yield

    def _separate(self, placed: _Placed) -> None:
        for position in reversed(range(len(placed.nodes))):
            broker = self.receivers.get(placed.nodes[position])
            if broker is None or broker.machine is None:
                continue
            if shares_machine(broker, self._others(placed, broker.id)):
                self._replace(placed, position)

    def _replace(self, placed: _Placed, position: int) -> None:
        """Move a replica to the best machine without another one; it stays if there is none."""
        others = self._others(placed, placed.nodes[position])
        free = [
            broker
            for broker in self.receivers.values()
            if broker.id not in placed.nodes and not shares_machine(broker, others)
        ]
        if free:
            self._move(placed, position, self._best(placed, others, free))

    def even_out(self) -> Steps[None]:
        mean = sum(self._carried.values()) / len(self._carried)
        held: dict[int, set[_Placed]] = {node: set() for node in self._carried}
        for some in slices(self.placed):
            for placed in some:
                for node in placed.nodes:
                    if node in held:
                        held[node].add(placed)
            yield
        # Each move makes brokers more alike, so this ends. One that received may yet have to give.
        while (yield from self._move_some(held, mean)):
            continue

    def _move_some(self, held: Mapping[int, set[_Placed]], mean: float) -> Steps[bool]:
        moved = False
        for receiver in sorted(self._carried, key=lambda node: (self._carried[node], node)):
            yield
            for donor in sorted(self._carried, key=lambda node: (-self._carried[node], node)):
                if not self._uneven(self._carried, mean, donor, receiver, 0.0):
                    continue
                candidates = yield from self._candidates(held[donor], receiver)
                for number in count(1):
                    if not candidates or not self._uneven(self._carried, mean, donor, receiver, 0.0):
                        break
                    placed = heappop(candidates).placed
                    if self._uneven(self._carried, mean, donor, receiver, placed.weight) and self._no_closer(
                        placed, donor, receiver
                    ):
                        self._move(placed, placed.nodes.index(donor), self.receivers[receiver])
                        held[donor].remove(placed)
                        held[receiver].add(placed)
                        moved = placed.moved = True
                    if is_slice_over(number):
                        yield
        return moved

    def _candidates(self, held: Collection[_Placed], receiver: int) -> Steps[list[_Candidate]]:
        """The replicas that could move to the receiver, as a heap with the best first.

        One per partition if that is enough.
        """
        found: list[_Candidate] = []
        for some in slices(list(held)):
            found += [
                _Candidate(placed.moved, -self._score(placed, receiver), placed.name, placed)
                for placed in some
                if receiver not in placed.nodes
            ]
            yield
        heapify(found)
        return found

    def spread_leaders(self) -> Steps[None]:
        leads = dict.fromkeys(self.receivers, 0.0)
        for some in slices(self.placed):
            for placed in some:
                if placed.nodes[0] in leads:
                    leads[placed.nodes[0]] += placed.weight
            yield
        mean = sum(leads.values()) / len(leads)
        while (yield from self._hand_over_some(leads, mean)):
            continue

    def _hand_over_some(self, leads: dict[int, float], mean: float) -> Steps[bool]:
        handed_over = False
        for some in slices(self.placed):
            for placed in some:
                first = placed.nodes[0]
                others = [node for node in placed.nodes[1:] if node in leads]
                if first not in leads or not others:
                    continue
                other = min(others, key=lambda node: (leads[node], node))
                if self._uneven(leads, mean, first, other, placed.weight):
                    position = placed.nodes.index(other)
                    placed.nodes[0], placed.nodes[position] = other, first
                    leads[first] -= placed.weight
                    leads[other] += placed.weight
                    handed_over = True
            yield
        return handed_over

    def _uneven(
        self, loads: Mapping[int, float], mean: float, donor: int, receiver: int, weight: float
    ) -> bool:
        """Whether `weight` should go from the donor to the receiver, without making that the heavier one."""
        high, low = loads[donor], loads[receiver]
        far_off = high > mean * (1 + self._tolerance) or low < mean * (1 - self._tolerance)
        return far_off and high > mean > low and high - low >= 2 * weight

    def _no_closer(self, placed: _Placed, donor: int, receiver: int) -> bool:
        others = self._others(placed, donor)
        return is_no_closer(self.receivers[receiver], self.receivers[donor], others)

    def _best(self, placed: _Placed, others: list[BrokerImage], free: list[BrokerImage]) -> BrokerImage:
        """The broker that is farthest from the others and carries least; of several, by score."""
        hosts, racks = [other.host for other in others], [other.rack for other in others]
        reasons = [(hosts.count(b.host), racks.count(b.rack), self._carried[b.id]) for b in free]
        least = min(reasons)
        # A score is a hash: with a thousand brokers, those of all take most of the time.
        equals = [broker for broker, against in zip(free, reasons, strict=True) if against == least]
        return max(equals, key=lambda broker: self._score(placed, broker.id))

    def _others(self, placed: _Placed, node: int) -> list[BrokerImage]:
        """The brokers of the partition's other replicas."""
        return [self._brokers[n] for n in placed.nodes if n != node and n in self._brokers]

    def _move(self, placed: _Placed, position: int, broker: BrokerImage) -> None:
        node = placed.nodes[position]
        if node in self._carried:
            self._carried[node] -= placed.weight
        placed.nodes[position] = broker.id
        self._carried[broker.id] += placed.weight

    @staticmethod
    def _score(placed: _Placed, node: int) -> int:
        return rendezvous_score(placed.image.topic_id, placed.image.index, node)


def _partitions(image: ClusterImage) -> Iterator[tuple[TopicPartition, PartitionImage]]:
    """All partitions of topics that are there at the beginning, however the image changes meanwhile."""
    for topic in list(image.topics.values()):
        for index, partition in list(topic.partitions.items()):
            yield TopicPartition(topic.name, index), partition
