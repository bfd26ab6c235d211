"""A plan that evens out the brokers' load with few moves: after brokers were added, before one goes, by load.

A replica counts as one, plus its load relative to the mean, so numbers decide in an idle cluster and load in
a busy one. Brokers above the mean give to those below it, until neither would gain; nothing else moves: a new
broker among n receives about 1/n of the replicas. Rendezvous scores say which. No move puts replicas of a
partition closer together, and replicas that a user has assigned to one `penstock.machine` are moved apart
where there is another machine. Then the order of replicas is changed, which moves no data, where the
preferred leaders are uneven. Brokers that are down keep what they have; they may come back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from penstock.metadata.image import BrokerImage, ClusterImage, PartitionImage
from penstock.metadata.placement import (
    is_no_closer,
    may_receive,
    rendezvous_score,
    shares_machine,
)
from penstock.model.ids import TopicPartition

__all__ = ["Move", "plan_evacuation", "plan_rebalance"]


class Move(NamedTuple):
    """A partition and the replicas that it should have, the preferred leader first."""

    partition: TopicPartition
    replicas: list[int]


def plan_rebalance(
    image: ClusterImage,
    loads: Mapping[TopicPartition, float],
    *,
    leaving: Collection[int] = (),
    excluded: Collection[int] = (),
    tolerance: float = 0.1,
) -> list[Move]:
    """`loads` in any unit (bytes per second); brokers that are `leaving` end up empty if others have room.

    A broker within `tolerance` of the mean is left alone, unless it can help one that is not. Partitions that
    are being reassigned are not touched. Brokers that are `excluded` keep what they have.
    """
    plan = _Plan(image, loads, {*leaving, *excluded}, tolerance)
    if plan.receivers:
        staying = image.brokers.keys() - set(leaving)
        plan.evacuate(lambda node: node not in staying)
        plan.separate()
        plan.even_out()
        plan.spread_leaders()
    return plan.moves()


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
    plan = _Plan(image, {}, {*leaving, *excluded}, 0.0, partitions)
    plan.evacuate(lambda node: node in leaving)
    return plan.moves()


class _Placed:
    """A partition in the plan: `nodes` is what its replicas shall be."""

    __slots__ = ("image", "moved", "name", "nodes", "weight")

    def __init__(self, image: PartitionImage, name: TopicPartition, weight: float) -> None:
        self.image = image
        self.name = name
        self.weight = weight
        self.nodes = list(image.replicas)
        #: whether a replica of it moves already for the sake of balance
        self.moved = False


class _Plan:
    def __init__(
        self,
        image: ClusterImage,
        loads: Mapping[TopicPartition, float],
        excluded: Collection[int],
        tolerance: float,
        partitions: Iterable[PartitionImage] | None = None,
    ) -> None:
        """`partitions` that may move, all by default; brokers that are `excluded` receive nothing."""
        self._brokers = image.brokers
        self._tolerance = tolerance
        self.receivers = {
            broker.id: broker
            for broker in sorted(image.brokers.values(), key=lambda b: b.id)
            if may_receive(broker) and broker.id not in excluded
        }
        mean = sum(loads.values()) / max(1, len(loads)) or 1.0
        self.placed: list[_Placed] = []
        #: what each broker will hold once every reassignment that is under way has ended
        self._carried = {node: float(len(image.partitions_on(node))) for node in self.receivers}
        for partition in image.reassigning.values():
            for node in self._carried.keys() & set(partition.removing):
                self._carried[node] -= 1.0
        for partition in image.partitions if partitions is None else partitions:
            if partition.reassigning:
                continue
            topic = image.topics_by_id[partition.topic_id].name
            name = TopicPartition(topic, partition.index)
            placed = _Placed(partition, name, 1.0 + loads.get(name, 0.0) / mean)
            for node in self._carried.keys() & set(placed.nodes):
                self._carried[node] += placed.weight - 1.0
            self.placed.append(placed)

    def moves(self) -> list[Move]:
        return [Move(placed.name, placed.nodes) for placed in self.placed if self._is_change(placed)]

    def evacuate(self, leaves: Callable[[int], bool]) -> None:
        for placed in self.placed:
            for position, node in enumerate(placed.nodes):
                if not leaves(node):
                    continue
                self._replace(placed, position)

    def separate(self) -> None:
        """Move replicas away from machines that hold another one of their partition, the last ones first."""
        for placed in self.placed:
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

    def even_out(self) -> None:
        mean = sum(self._carried.values()) / len(self._carried)
        held: dict[int, set[_Placed]] = {node: set() for node in self._carried}
        for placed in self.placed:
            for node in placed.nodes:
                if node in held:
                    held[node].add(placed)
        # Each move makes brokers more alike, so this ends. One that received may yet have to give.
        while self._moves_some(held, mean):
            continue

    def _moves_some(self, held: Mapping[int, set[_Placed]], mean: float) -> bool:
        moved = False
        for receiver in sorted(self._carried, key=lambda node: (self._carried[node], node)):
            for donor in sorted(self._carried, key=lambda node: (-self._carried[node], node)):
                if not self._uneven(self._carried, mean, donor, receiver, 0.0):
                    continue
                for placed in self._candidates(held[donor], receiver):
                    if self._uneven(self._carried, mean, donor, receiver, placed.weight) and self._no_closer(
                        placed, donor, receiver
                    ):
                        self._move(placed, placed.nodes.index(donor), self.receivers[receiver])
                        held[donor].remove(placed)
                        held[receiver].add(placed)
                        moved = placed.moved = True
        return moved

    def _candidates(self, held: Collection[_Placed], receiver: int) -> list[_Placed]:
        """The replicas that could move to the receiver, the best first.

        One per partition if that is enough.
        """
        return sorted(
            (placed for placed in held if receiver not in placed.nodes),
            key=lambda placed: (placed.moved, -self._score(placed, receiver), placed.name),
        )

    def spread_leaders(self) -> None:
        leads = dict.fromkeys(self.receivers, 0.0)
        for placed in self.placed:
            if placed.nodes[0] in leads:
                leads[placed.nodes[0]] += placed.weight
        mean = sum(leads.values()) / len(leads)
        while self._hands_over_some(leads, mean):
            continue

    def _hands_over_some(self, leads: dict[int, float], mean: float) -> bool:
        handed_over = False
        for placed in self.placed:
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
        return handed_over

    def _is_change(self, placed: _Placed) -> bool:
        """Also whether it can be requested: not while a replica is on an unregistered broker."""
        return placed.nodes != placed.image.replicas and self._brokers.keys() >= set(placed.nodes)

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
