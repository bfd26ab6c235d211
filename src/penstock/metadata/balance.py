"""Balancing by measured load, a step at a time: what partitions take in, and which one move helps most.

A broker has two loads: the bytes per second of the partitions that it leads, and those of all partitions of
which it has a replica. As long
as a broker leads clearly more than the mean (`tolerance`), a leader moves to a follower in sync, which costs
nothing. Only then, and only where that is wanted, a replica moves to a broker that holds less. No move puts
replicas of a partition closer together, and none is made while a broker is down or anything else moves.

Invariant: each step lowers the sum of the squares of both kinds of load, so steps come to an end; and it must
lower it clearly, so that loads which change a little move nothing back and forth.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Final, NamedTuple

from penstock.metadata.election import begin_change
from penstock.metadata.image import ClusterImage, Origin, PartitionImage
from penstock.metadata.partition_change import Election
from penstock.metadata.placement import is_no_closer, may_receive
from penstock.metadata.policy import Policy
from penstock.metadata.reassignment import start_reassignment
from penstock.metadata.rebalance import Move
from penstock.model.ids import TopicPartition
from penstock.wire.schema import Struct

__all__ = ["LoadMeter", "Measured", "begin_step", "next_step"]

#: how much of an old measurement each new one keeps: a burst is not a load
_KEPT: Final = 0.5
#: measurements before a load counts
_MEASUREMENTS_MIN: Final = 3
#: bytes per second and broker, below which a cluster is idle: nothing is won by moving
_IDLE_BELOW: Final = 1024.0
#: the highest write rate of a moving partition, as a share of the copying rate: a copy must end
_CATCHES_UP: Final = 0.5


class Measured(NamedTuple):
    """The leader of a partition and the size of its log."""

    leader: int
    size: int


class LoadMeter:
    """The write load of partitions in bytes per second, from the growth of their leaders' logs."""

    __slots__ = ("_at_ms", "_last", "_measurements", "loads")

    def __init__(self) -> None:
        self._at_ms = 0.0
        self._last: Mapping[TopicPartition, Measured] = {}
        self._measurements = 0
        self.loads: dict[TopicPartition, float] = {}

    @property
    def is_ready(self) -> bool:
        """Whether there is enough to go by."""
        return self._measurements >= _MEASUREMENTS_MIN

    def measured(self, held: Mapping[TopicPartition, Measured], now_ms: float) -> None:
        """Take in what all leaders hold now.

        A log that has shrunk was cut by retention, and another leader's is cut elsewhere: such a
        measurement says nothing.
        """
        seconds = (now_ms - self._at_ms) / 1000
        last, before = self._last, self.loads
        self._last, self._at_ms = held, now_ms
        if not last or seconds <= 0:
            return
        self._measurements += 1
        self.loads = {}
        for partition, now in held.items():
            load = before.get(partition, 0.0)
            past = last.get(partition)
            if past is not None and past.leader == now.leader and now.size >= past.size:
                rate = (now.size - past.size) / seconds
                load = rate if partition not in before else _KEPT * load + (1 - _KEPT) * rate
            self.loads[partition] = load


def next_step(
    image: ClusterImage,
    loads: Mapping[TopicPartition, float],
    *,
    tolerance: float,
    replicas: bool,
    copied_per_s: float = inf,
    even_numbers: bool = False,
) -> Move | None:
    """The move that evens out the brokers most, None where nothing has to move, or may.

    With `replicas`, replicas may move, too, and not only leaders: those that can catch up with what they take
    in while they are copied at `copied_per_s`. With `even_numbers` no broker gives so many replicas that it
    would be given others in return (`penstock.balance.new.brokers`).
    """
    if image.reassigning or not all(may_receive(broker) for broker in image.brokers.values()):
        return None
    state = _State(image, loads, tolerance)
    steps = list(state.leader_moves())
    if not steps and replicas:
        least = state.mean_number * (1 - tolerance) if even_numbers else 0.0
        steps = list(state.replica_moves(copied_per_s * _CATCHES_UP, least))
    return min(steps, key=lambda step: (-step.gain, step.move)).move if steps else None


def begin_step(image: ClusterImage, policy: Policy, move: Move, origin: Origin = Origin.LOAD) -> list[Struct]:
    """The records that begin a move: a leader changes at once, a replica is reassigned."""
    partition = image.topics[move.partition.topic].partitions[move.partition.partition]
    if set(move.replicas) == set(partition.replicas):
        change = begin_change(image, policy, partition)
        change.replicas = move.replicas
        change.election = Election.PREFERRED
        record = change.build()
    else:
        record = start_reassignment(image, policy, partition, move.replicas, origin)
    return [] if record is None else [record]


class _Step(NamedTuple):
    #: by how much the sum of squares falls
    gain: float
    move: Move


class _Loads:
    """One kind of load, by broker."""

    __slots__ = ("_by_broker", "_mean", "_tolerance")

    def __init__(self, by_broker: Mapping[int, float], tolerance: float) -> None:
        self._by_broker = by_broker
        self._mean = sum(by_broker.values()) / max(1, len(by_broker))
        self._tolerance = tolerance

    def are_too_much_for(self, broker: int) -> bool:
        load = self._by_broker.get(broker, 0.0)
        return self._mean >= _IDLE_BELOW and load > self._mean * (1 + self._tolerance)

    def gain(self, load: float, donor: int, receiver: int) -> float:
        """By how much the sum of squares falls if `load` moves; negative where it would rise."""
        return 2 * load * (self._by_broker[donor] - self._by_broker[receiver] - load)

    def are_clearly_evener(self, load: float, donor: int, receiver: int) -> bool:
        """Whether the receiver of `load` stays clearly below what the donor had."""
        ahead = self._by_broker[donor] - self._by_broker[receiver] - load
        return load > 0 and ahead >= self._mean * self._tolerance / 2


class _State:
    """The load of each broker: of its leaders, and of all its replicas."""

    def __init__(self, image: ClusterImage, loads: Mapping[TopicPartition, float], tolerance: float) -> None:
        self._brokers = image.brokers
        self._loaded: list[tuple[TopicPartition, PartitionImage, float]] = []
        led, held = dict.fromkeys(image.brokers, 0.0), dict.fromkeys(image.brokers, 0.0)
        for topic in image.topics.values():
            for index, partition in topic.partitions.items():
                name = TopicPartition(topic.name, index)
                load = loads.get(name, 0.0)
                self._loaded.append((name, partition, load))
                if partition.leader in led:
                    led[partition.leader] += load
                for node in partition.replicas:
                    if node in held:
                        held[node] += load
        self._led, self._held = _Loads(led, tolerance), _Loads(held, tolerance)
        self._numbers = {node: len(image.partitions_on(node)) for node in image.brokers}
        self.mean_number = sum(self._numbers.values()) / max(1, len(self._numbers))

    def leader_moves(self) -> Iterator[_Step]:
        """A leader and a follower change places; where the preferred one does not lead, that comes first."""
        for name, partition, load in self._loaded:
            leader, *followers = partition.replicas
            if partition.leader != leader or not self._led.are_too_much_for(leader):
                continue
            for follower in followers:
                if follower in partition.isr and self._led.are_clearly_evener(load, leader, follower):
                    nodes = _swapped(partition.replicas, leader, follower)
                    yield _Step(self._led.gain(load, leader, follower), Move(name, nodes))

    def replica_moves(self, most: float, least: float) -> Iterator[_Step]:
        """A replica goes to a broker without one; a leader only where that does not cost leaders more.

        Only replicas that take in `most` at most; a donor keeps `least` replicas.
        """
        for name, partition, load in self._loaded:
            if load > most or set(partition.isr) != set(partition.replicas):
                continue
            for donor in filter(self._held.are_too_much_for, partition.replicas):
                if self._numbers[donor] - 1 < least:
                    continue
                for receiver in self._brokers.keys() - set(partition.replicas):
                    if not self._held.are_clearly_evener(load, donor, receiver):
                        continue
                    gain = self._held.gain(load, donor, receiver)
                    if donor == partition.leader:
                        gain += self._led.gain(load, donor, receiver)
                    if gain > 0 and self._no_closer(partition, donor, receiver):
                        nodes = [receiver if node == donor else node for node in partition.replicas]
                        yield _Step(gain, Move(name, nodes))

    def _no_closer(self, partition: PartitionImage, donor: int, receiver: int) -> bool:
        others = [self._brokers[node] for node in partition.replicas if node != donor]
        return is_no_closer(self._brokers[receiver], self._brokers[donor], others)


def _swapped(replicas: list[int], first: int, second: int) -> list[int]:
    places = {first: second, second: first}
    return [places.get(node, node) for node in replicas]
