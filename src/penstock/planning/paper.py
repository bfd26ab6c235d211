"""A planned cluster on paper: the controller's code places its partitions, and every broker's load is added
up.

Topics are created by `metadata.topics`, brokers are lost by `metadata.brokers.fence_broker`, and replicas are
rebuilt by `metadata.rebalance.plan_evacuation`. Only the load is computed here. So a plan is checked against
the placement that a real cluster would have, and not against a mean.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.metadata.brokers import fence_broker
from penstock.metadata.image import ClusterImage
from penstock.metadata.policy import Policy
from penstock.metadata.rebalance import plan_evacuation
from penstock.metadata.topics import Defaults, NewTopic, create_topic
from penstock.model.ids import TopicId, TopicPartition
from penstock.model.steps import at_once
from penstock.planning.sizing import Sizing
from penstock.planning.workload import BROKER_BUSY
from penstock.wire.metadata_records import BrokerEndpoint, RegisterBrokerRecord
from penstock.wire.schema import Struct

__all__ = ["VOTERS", "PaperCluster", "Peak"]

#: the resource of a peak: voters that are lost, as a share of those that a majority can spare
VOTERS: Final = "voters"

_IMPRECISION: Final = 1e-9
#: the most partitions that one request may create
_MOST_PARTITIONS: Final = 10_000


class Peak(NamedTuple):
    """The highest use of one resource in one situation, as a share of its limit."""

    situation: str
    resource: str
    share: float

    @property
    def exceeded(self) -> bool:
        """Whether the use is above the limit, by more than sums of many loads are imprecise."""
        return self.share > 1 + _IMPRECISION


@dataclass(slots=True)
class _Load:
    """Bytes per second and busy cores of a broker or of a machine."""

    cores: float = 0.0
    received: float = 0.0
    sent: float = 0.0
    replicas: int = 0


class PaperCluster:
    """The brokers of a plan, with its partitions placed on them."""

    def __init__(self, sizing: Sizing) -> None:
        self._sizing = sizing
        per_machine, zones = sizing.brokers_per_machine, sizing.workload.zones
        #: by the number of the machine; machines are given to zones in turn
        self._brokers = [
            range(1 + machine * per_machine, 1 + (machine + 1) * per_machine)
            for machine in range(sizing.machines)
        ]
        self._machine_of = {node: number for number, nodes in enumerate(self._brokers) for node in nodes}
        self._records: list[Struct] = [
            self._registration(node, number, number % zones)
            for number, nodes in enumerate(self._brokers)
            for node in nodes
        ]
        for number in range(math.ceil(sizing.partitions / _MOST_PARTITIONS)):
            count = min(_MOST_PARTITIONS, sizing.partitions - number * _MOST_PARTITIONS)
            self._create(f"planned-{number + 1}", count)

    def check(self, machines: int | None = None) -> list[Peak]:
        """The peaks of all situations: no loss, each of some `machines` lost (all by default), each zone
        lost.
        """
        peaks = self._peaks("all machines up", ())
        workload = self._sizing.workload
        if workload.replicas == 1:
            return peaks
        count = min(machines or len(self._brokers), len(self._brokers))
        for position in range(count):
            number = position * len(self._brokers) // count
            peaks += self._peaks(f"machine {number + 1} lost", [number])
        for zone in range(workload.zones if workload.zones > 1 else 0):
            lost = range(zone, len(self._brokers), workload.zones)
            peaks += self._peaks(f"zone {zone + 1} lost", lost)
        return peaks

    def _create(self, topic: str, partitions: int) -> None:
        topic_id = TopicId(topic.encode().rjust(16, b"."))
        wanted = NewTopic(topic, partitions, self._sizing.workload.replicas)
        self._records += at_once(create_topic(self._image(), wanted, Defaults(1, 1), lambda: topic_id))

    def machines_of_replicas(self) -> list[list[int]]:
        """The machines of each partition's replicas."""
        return [[self._machine_of[node] for node in p.replicas] for p in self._image().partitions]

    def _registration(self, node: int, machine: int, zone: int) -> Struct:
        # Brokers are known by their machine: the address alone would not tell brokers of one machine apart.
        return RegisterBrokerRecord(
            broker_id=node,
            rack=f"zone-{zone + 1}",
            machine=f"machine-{machine + 1}",
            fenced=False,
            end_points=[BrokerEndpoint(name="INTERNAL", host=f"10.0.0.{machine}", port=19092)],
            log_dirs=[node.to_bytes(16, "big")],
        )

    def _image(self) -> ClusterImage:
        image = ClusterImage()
        _apply(image, self._records)
        return image

    def _peaks(self, situation: str, lost: Collection[int]) -> list[Peak]:
        image = self._image()
        gone = [node for number in lost for node in self._brokers[number]]
        for node in gone:
            _apply(image, at_once(fence_broker(image, Policy(), node)))
        rebuilt = len(lost) == 1 and self._sizing.machines > self._sizing.workload.replicas
        brokers = self._loads(image, self._moves(image, gone) if rebuilt else {})
        machines = [_Load() for _ in self._brokers]
        for node, load in brokers.items():
            _add(machines[self._machine_of[node]], load)
        shares = [*self._shares(brokers.values(), machines), *self._quorum(lost)]
        return [Peak(situation, name, share) for name, share in shares]

    def _quorum(self, lost: Collection[int]) -> Iterator[tuple[str, float]]:
        """The first machines have a voter each, so that voters are spread over all zones."""
        if spared := (self._sizing.voters - 1) // 2:
            yield VOTERS, sum(number < self._sizing.voters for number in lost) / spared

    @staticmethod
    def _moves(image: ClusterImage, gone: Collection[int]) -> dict[TopicPartition, list[int]]:
        """The replicas of partitions once those of the lost brokers are rebuilt."""
        held = {p.key: p for node in gone for p in image.partitions_on(node)}
        return dict(plan_evacuation(image, held.values(), gone))

    def _loads(self, image: ClusterImage, moved: dict[TopicPartition, list[int]]) -> dict[int, _Load]:
        workload, costs = self._sizing.workload, self._sizing.costs
        rate = workload.write_bytes_s / self._sizing.partitions
        idle = self._sizing.idle_cores / (self._sizing.partitions * workload.replicas)
        loads = {node: _Load() for node in self._machine_of}
        for partition in image.partitions:
            name = TopicPartition(image.topics_by_id[partition.topic_id].name, partition.index)
            following = moved.get(name, partition.isr)
            followers = [node for node in following if node != partition.leader]
            readers = len(followers) + workload.fan_out
            leader = loads[partition.leader]
            leader.cores += rate * costs.leader(readers) + idle
            leader.received += rate
            leader.sent += rate * readers
            leader.replicas += 1
            for node in followers:
                follower = loads[node]
                follower.cores += rate * costs.follow + idle
                follower.received += rate
                follower.replicas += 1
        return loads

    def _shares(self, brokers: Iterable[_Load], machines: list[_Load]) -> list[tuple[str, float]]:
        workload, hardware = self._sizing.workload, self._sizing.hardware
        replica = workload.stored_bytes / self._sizing.partitions
        received = max(load.received for load in machines)
        return [
            ("processor", max(load.cores for load in brokers) / BROKER_BUSY),
            ("network in", received / hardware.usable_network_bytes_s),
            ("network out", max(load.sent for load in machines) / hardware.usable_network_bytes_s),
            ("disk writes", received / hardware.usable_write_bytes_s),
            ("disk space", max(load.replicas for load in machines) * replica / hardware.usable_disk_bytes),
            ("page cache", received * workload.cache_s / self._sizing.cache_bytes),
        ]


def _apply(image: ClusterImage, records: Iterable[Struct]) -> None:
    for record in records:
        image.apply(record, image.offset + 1)


def _add(total: _Load, load: _Load) -> None:
    total.cores += load.cores
    total.received += load.received
    total.sent += load.sent
    total.replicas += load.replicas
