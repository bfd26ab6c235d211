"""A simulated cluster: its image, and decisions that are made, encoded, read and applied as in a controller.

Brokers exist as registrations and requests only. Each decision passes through the code of an active
controller and of its loader: the decision in slices, one batch of the metadata log, its records, the image.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator
from random import Random
from typing import Final, NamedTuple, TypeVar

from penstock.metadata.absences import Absences
from penstock.metadata.alter_partition import alter_partition
from penstock.metadata.batch_application import BatchApplication
from penstock.metadata.brokers import heartbeat, register_broker
from penstock.metadata.features import METADATA_VERSION
from penstock.metadata.image import ClusterImage, PartitionImage
from penstock.metadata.policy import Policy
from penstock.model.ids import TopicId
from penstock.model.steps import is_slice_over
from penstock.records.record import iter_records
from penstock.records.value_batch import value_batch
from penstock.wire.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionRequestTopic,
    BrokerState,
)
from penstock.wire.apis.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.wire.apis.broker_registration import BrokerRegistrationRequest
from penstock.wire.apis.endpoints import Feature, Listener
from penstock.wire.metadata_records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_metadata_record,
    encode_metadata_record,
)
from penstock.wire.schema import Struct

__all__ = ["PER_BROKER", "PER_TOPIC", "ZONES", "Cost", "Size", "Stage", "records_of"]

T = TypeVar("T")
#: partitions that a broker leads
PER_BROKER: Final = 1000
PER_TOPIC: Final = 10
ZONES: Final = 3
_LEVEL: Final = 30
_CLUSTER: Final = "simulated"
#: a metadata offset that every broker has reached
_EVERYWHERE: Final = 2**62


class Size(NamedTuple):
    """The numbers of a cluster; every partition has a replica in each of three zones."""

    partitions: int
    brokers: int

    @classmethod
    def of(cls, partitions: int) -> Size:
        """As many brokers as `PER_BROKER` asks for, and as many in each zone as in the others."""
        return cls(partitions, max(ZONES, ZONES * round(partitions / PER_BROKER / ZONES)))

    @property
    def topics(self) -> int:
        return -(-self.partitions // PER_TOPIC)


def _directory(node: int) -> bytes:
    return (10_000 + node).to_bytes(16, "big")


def broker_record(node: int, epoch: int) -> RegisterBrokerRecord:
    """A broker that is up."""
    return RegisterBrokerRecord(
        broker_id=node,
        incarnation_id=node.to_bytes(16, "big"),
        broker_epoch=epoch,
        end_points=[BrokerEndpoint(name="INTERNAL", host=f"host{node}", port=9092, security_protocol=0)],
        features=[
            BrokerFeature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=_LEVEL)
        ],
        rack=f"zone{node % ZONES}",
        fenced=False,
        log_dirs=[_directory(node)],
    )


def records_of(size: Size, seed: int = 1) -> Iterator[Struct]:
    """The records of a cluster in which all is well. Followers are spread at random, leaders in turn."""
    rng = Random(seed)
    yield FeatureLevelRecord(name=METADATA_VERSION, feature_level=_LEVEL)
    for node in range(size.brokers):
        yield broker_record(node, epoch=node)
    per_zone = size.brokers // ZONES
    for number in range(size.topics):
        topic_id = rng.randbytes(16)
        yield TopicRecord(name=f"topic-{number:06}", topic_id=topic_id)
        for index in range(min(PER_TOPIC, size.partitions - number * PER_TOPIC)):
            leader = (number * PER_TOPIC + index) % size.brokers
            others = [(leader + zone) % ZONES for zone in range(1, ZONES)]
            rng.shuffle(others)
            nodes = [leader, *(zone + ZONES * rng.randrange(per_zone) for zone in others)]
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic_id,
                replicas=nodes,
                isr=list(nodes),
                leader=leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=[_directory(node) for node in nodes],
            )


class Cost(NamedTuple):
    """The cost of some decisions: processor time, bytes of the metadata log, records, the longest slice."""

    seconds: float = 0.0
    size: int = 0
    records: int = 0
    slice_s: float = 0.0

    def __add__(self, other: object) -> Cost:
        assert isinstance(other, Cost)
        return Cost(
            self.seconds + other.seconds,
            self.size + other.size,
            self.records + other.records,
            max(self.slice_s, other.slice_s),
        )


class Stage:
    """The image of an active controller, and the brokers that send it requests."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.policy = Policy()
        self.absences = Absences()
        self._registered = 0

    def change(self, records: Iterable[Struct]) -> Cost:
        """Append and apply a decision that is made already."""
        made = list(records)

        def decided() -> Generator[None, None, list[Struct]]:
            yield
            return made

        return self.decide(decided())

    def decide(self, steps: Generator[None, None, list[Struct]]) -> Cost:
        """Make a decision, append and apply it; returns its cost."""
        started = time.thread_time()
        records, decided_s = _longest(steps)
        batch = bytearray()
        if records:
            batch, encoded_s = _longest(value_batch(map(encode_metadata_record, records), 0))
            _, applied_s = _longest(self._apply(batch))
            decided_s = max(decided_s, encoded_s, applied_s)
            self.absences.observed(self.image, 0.0)
        return Cost(time.thread_time() - started, len(batch), len(records), decided_s)

    def _apply(self, batch: bytearray) -> Generator[None, None, None]:
        first = self.image.offset + 1
        application = BatchApplication(self.image)
        for number, record in enumerate(iter_records(memoryview(batch)), 1):
            assert record.value is not None
            application.apply(decode_metadata_record(record.value), first + record.offset)
            if is_slice_over(number):
                yield
        application.publish()

    # -- requests of brokers

    def heartbeat_of(self, node: int, *, stops: bool = False) -> BrokerHeartbeatRequest:
        return BrokerHeartbeatRequest(
            broker_id=node,
            broker_epoch=self.image.brokers[node].epoch,
            current_metadata_offset=self.image.offset,
            want_shut_down=stops,
        )

    def beat(self, node: int, *, stops: bool = False) -> tuple[Cost, BrokerHeartbeatResponse]:
        """A heartbeat, with the changes that it causes."""
        request = self.heartbeat_of(node, stops=stops)
        answers: list[BrokerHeartbeatResponse] = []

        def decided() -> Generator[None, None, list[Struct]]:
            records, answer = yield from heartbeat(self.image, self.policy, request, _EVERYWHERE)
            answers.append(answer)
            return records

        return self.decide(decided()), answers[0]

    def register(self, node: int) -> Cost:
        """A new incarnation of a broker that was shut down cleanly."""
        known = self.image.brokers[node]
        self._registered += 1
        request = BrokerRegistrationRequest(
            broker_id=node,
            cluster_id=_CLUSTER,
            incarnation_id=b"again" + self._registered.to_bytes(11, "big"),
            listeners=[Listener(name="INTERNAL", host=f"host{node}", port=9092)],
            features=[Feature(name=METADATA_VERSION, min_supported_version=7, max_supported_version=_LEVEL)],
            rack=known.rack,
            log_dirs=list(known.log_directories),
            previous_broker_epoch=known.epoch,
            previous_incarnation_id=known.incarnation,
        )

        def decided() -> Generator[None, None, list[Struct]]:
            records, _ = yield from register_broker(
                self.image,
                self.policy,
                request,
                cluster_id=_CLUSTER,
                session_alive=False,
                next_offset=self.image.offset + 1,
            )
            return records

        return self.decide(decided())

    def catch_up(self, partitions: Iterable[PartitionImage]) -> Cost:
        """All replicas of partitions are in sync: each leader says so in one request."""
        by_leader: dict[int, list[PartitionImage]] = {}
        for partition in partitions:
            by_leader.setdefault(partition.leader, []).append(partition)
        cost = Cost()
        for leader, led in by_leader.items():
            request = self._in_sync(leader, led)
            started = time.thread_time()
            records, _ = alter_partition(self.image, self.policy, request)
            decided_s = time.thread_time() - started
            cost += Cost(decided_s, slice_s=decided_s) + self.change(records)
        return cost

    def _in_sync(self, leader: int, led: Iterable[PartitionImage]) -> AlterPartitionRequest:
        topics: dict[TopicId, AlterPartitionRequestTopic] = {}
        for each in led:
            topic = topics.setdefault(
                each.topic_id, AlterPartitionRequestTopic(topic_id=each.topic_id, partitions=[])
            )
            topic.partitions.append(
                AlterPartitionRequestPartition(
                    partition_index=each.index,
                    leader_epoch=each.leader_epoch,
                    partition_epoch=each.partition_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=node, broker_epoch=self.image.brokers[node].epoch)
                        for node in each.replicas
                        if self.image.brokers[node].active
                    ],
                    leader_recovery_state=each.leader_recovery,
                )
            )
        return AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.image.brokers[leader].epoch,
            topics=list(topics.values()),
        )


def _longest(steps: Generator[None, None, T]) -> tuple[T, float]:
    """The result, and the processor time of the longest slice."""
    longest = 0.0
    while True:
        started = time.thread_time()
        try:
            next(steps)
        except StopIteration as e:
            return e.value, max(longest, time.thread_time() - started)
        longest = max(longest, time.thread_time() - started)
