"""Decisions about topics: create, grow, delete.

Each takes the image and gives the records that would bring the change about, or raises the error that the
client gets. Nothing here changes the image, so validate-only is the same call with the records thrown away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from penstock.metadata.image import NO_TIME, TOPIC, ClusterImage, TopicImage, unified_name
from penstock.metadata.placement import Load, Placer, check_assignment
from penstock.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from penstock.model.ids import INTERNAL_TOPICS, METADATA_TOPIC, NO_TOPIC_ID, TopicId
from penstock.model.steps import Steps, is_slice_over
from penstock.wire.metadata_records import ConfigRecord, PartitionRecord, RemoveTopicRecord, TopicRecord
from penstock.wire.schema import Struct

__all__ = [
    "NewTopic",
    "NewTopics",
    "check_new_partitions",
    "check_topic_name",
    "create_topic",
    "delete_topic",
    "grow_topic",
]

_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")
_LONGEST_NAME: Final = 249
#: partitions that one request may make, as in Kafka; what a person mistypes should not fill a disk
_MOST_PARTITIONS: Final = 10_000


class NewTopic(NamedTuple):
    """A requested topic; -1 stands for the broker's default."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] = {}
    configs: Mapping[str, str] = {}
    #: whether a partition was assigned more than once, so that `assignments` is not all that was requested
    is_ambiguous: bool = False


class Defaults(NamedTuple):
    partitions: int
    replication_factor: int


def check_topic_name(name: str) -> None:
    """Raise InvalidTopic unless `name` may name a topic."""
    if not name:
        raise InvalidTopic("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopic(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > _LONGEST_NAME:
        raise InvalidTopic(
            f"Topic name is invalid: the length of '{name}' is longer than the max allowed length "
            f"{_LONGEST_NAME}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopic(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            f"alphanumerics, '.', '_' and '-'"
        )


def check_new_partitions(count: int) -> None:
    """Raise PolicyViolation where a request wants more new partitions than one may make."""
    if count > _MOST_PARTITIONS:
        raise PolicyViolation(f"{count} partitions are more than the {_MOST_PARTITIONS} one request may make")


class NewTopics:
    """Shared state of the topics that one change creates: their names, and the places of their replicas."""

    def __init__(self, image: ClusterImage, excluded: Collection[int] = ()) -> None:
        """Brokers that are `excluded` receive no replicas."""
        self.load = Load(image, excluded)
        #: by the names of their metrics
        self.names: dict[str, str] = {}

    def add(self, name: str) -> None:
        """The topic of that name will be made."""
        self.names[unified_name(name)] = name


def create_topic(
    image: ClusterImage,
    topic: NewTopic,
    defaults: Defaults,
    new_id: Callable[[], TopicId],
    together: NewTopics | None = None,
    now_ms: int = NO_TIME,
    check_configs: Callable[[Mapping[str, str]], object] = lambda _: None,
) -> Steps[list[Struct]]:
    """The records that make `topic`: the topic, its configs, its partitions. Yields between its slices.

    `together` has the topics that the same change makes before it, `now_ms` is the controller's wall clock.
    `check_configs` raises what is wrong with the configs; as in Kafka, that comes before what is wrong with
    partitions and replicas.
    """
    name = topic.name
    together = together or NewTopics(image)
    if name in image.topics:
        raise TopicAlreadyExists(f"Topic '{name}' already exists.")
    if name == METADATA_TOPIC:
        raise InvalidRequest(f"The topic {METADATA_TOPIC} is the cluster's own and cannot be created")
    check_topic_name(name)
    _check_collision(image, name, together)
    check_configs(topic.configs)
    topic_id = new_id()
    records: list[Struct] = [TopicRecord(name=name, topic_id=topic_id, created_ms=now_ms, changed_ms=now_ms)]
    for key, value in topic.configs.items():
        records.append(ConfigRecord(resource_type=TOPIC, resource_name=name, name=key, value=value))
    if topic.assignments:
        replicas: Iterable[Sequence[int]] = _manual_placement(image, topic)
    else:
        count, factor = _numbers(topic, defaults)
        placer = Placer(together.load, topic_id)
        replicas = (placer.place(index, factor) for index in range(count))
    records += yield from _partitions(image, topic_id, 0, replicas)
    return records


def grow_topic(
    image: ClusterImage,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    now_ms: int = NO_TIME,
    excluded: Collection[int] = (),
) -> Steps[list[Struct]]:
    """The records that bring topic `name` up to `count` partitions; `now_ms` as for `create_topic`.

    Yields between its slices. Brokers that are `excluded` receive replicas only by `assignments`.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
    if name in INTERNAL_TOPICS:
        # By their number a coordinator is found: what groups have committed would be looked for elsewhere.
        raise InvalidPartitions(f"The number of partitions of {name} cannot be changed.")
    present = len(topic.partitions)
    if count == present:
        raise InvalidPartitions(f"Topic already has {present} partition(s).")
    if count < present:
        raise InvalidPartitions(
            f"The topic {name} currently has {present} partition(s); {count} would not be an increase."
        )
    check_new_partitions(count - present)
    factor = len(topic.partitions[0].replicas)
    placed: Iterable[Sequence[int]]
    if assignments is None:
        present_replicas = [partition.replicas for partition in topic.partitions.values()]
        placer = Placer(Load(image, excluded), topic.id, present_replicas)
        placed = (placer.place(index, factor) for index in range(present, count))
    elif len(assignments) != count - present:
        raise InvalidReplicaAssignment(
            f"Attempted to add {count - present} additional partition(s), but only {len(assignments)} "
            f"assignment(s) were specified."
        )
    else:
        for nodes in assignments:
            check_assignment(image, nodes, factor)
        placed = assignments
    added = yield from _partitions(image, topic.id, present, placed)
    added[-1].changed_ms = now_ms
    return [*added]


def delete_topic(topic: TopicImage) -> list[Struct]:
    return [RemoveTopicRecord(topic_id=topic.id)]


def _check_collision(image: ClusterImage, name: str, together: NewTopics) -> None:
    """Metrics write '.' as '_', so two names that differ only there may not live side by side."""
    unified = unified_name(name)
    other = image.unified_names.get(unified) or together.names.get(unified)
    if other is not None:
        raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")


def _manual_placement(image: ClusterImage, topic: NewTopic) -> list[Sequence[int]]:
    if topic.replication_factor != -1:
        raise InvalidRequest(
            "A manual partition assignment was specified, but replication factor was not set to -1."
        )
    if topic.partitions != -1:
        raise InvalidRequest(
            "A manual partition assignment was specified, but numPartitions was not set to -1."
        )
    if topic.is_ambiguous:
        raise InvalidReplicaAssignment("A partition is assigned more than once")
    if sorted(topic.assignments) != list(range(len(topic.assignments))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    factor = len(topic.assignments[0])
    placed = [topic.assignments[index] for index in range(len(topic.assignments))]
    for nodes in placed:
        check_assignment(image, nodes, factor)
    return placed


def _numbers(topic: NewTopic, defaults: Defaults) -> tuple[int, int]:
    """How many partitions, and how many replicas of each."""
    factor = topic.replication_factor
    count = topic.partitions
    if factor < -1 or factor == 0:
        raise InvalidReplicationFactor(
            "Replication factor must be larger than 0, or -1 to use the default value."
        )
    if count < -1 or count == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    factor = defaults.replication_factor if factor == -1 else factor
    count = defaults.partitions if count == -1 else count
    check_new_partitions(count)
    return count, factor


def _partitions(
    image: ClusterImage, topic_id: TopicId, first: int, placed: Iterable[Sequence[int]]
) -> Steps[list[PartitionRecord]]:
    """New partitions, numbered from `first` on. Yields between its slices."""
    made: list[PartitionRecord] = []
    for index, nodes in enumerate(placed, first):
        made.append(_partition(image, topic_id, index, nodes))
        if is_slice_over(len(made)):
            yield
    return made


def _partition(image: ClusterImage, topic_id: TopicId, index: int, nodes: Sequence[int]) -> PartitionRecord:
    """A new partition; replicas on brokers that are not up are not in sync."""
    isr = [node for node in nodes if image.brokers[node].active]
    if not isr:
        raise InvalidReplicaAssignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or "
            f"in controlled shutdown."
        )
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(nodes),
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[NO_TOPIC_ID] * len(nodes),
    )
