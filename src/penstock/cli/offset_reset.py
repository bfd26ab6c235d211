"""The offsets of a group, their new values, and the commit that changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import OffsetSpec

from penstock.cli.connection import Cluster, Refused
from penstock.cli.failure import Failure, misused
from penstock.cli.options import milliseconds

Key: TypeAlias = tuple[str, int]
Offsets: TypeAlias = Mapping[Key, int]


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of a group.

    Log start, log end, committed offset, and the offset that the target looked up.
    """

    key: Key
    start: int
    end: int
    committed: int | None
    looked_up: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """Computes the new offset of a partition; `spec` is an additional offset lookup that it needs."""

    offset: Callable[[Place], int]
    spec: OffsetSpec | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One partition's offset, before and after."""

    topic: str
    partition: int
    committed: int | None
    new: int

    def row(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "committed": self.committed,
            "new": self.new,
        }


def target(
    to_earliest: bool, to_latest: bool, to_offset: int | None, to_datetime: str | None, shift_by: int | None
) -> Target:
    """The target that the options name."""
    targets: list[Target] = []
    if to_earliest:
        targets.append(Target(lambda place: place.start))
    if to_latest:
        targets.append(Target(lambda place: place.end))
    if to_offset is not None:
        targets.append(Target(lambda place: to_offset))
    if to_datetime is not None:
        at = OffsetSpec.for_timestamp(milliseconds(to_datetime, "--to-datetime"))
        targets.append(Target(_looked_up_or_end, at))
    if shift_by is not None:
        targets.append(Target(lambda place: _committed(place) + shift_by))
    if len(targets) != 1:
        misused("name a target: one of --to-earliest, --to-latest, --to-offset, --to-datetime, --shift-by")
    return targets[0]


def selected(cluster: Cluster, group: str, committed: Offsets, topics: Sequence[str]) -> list[Key]:
    """The partitions that `TOPIC` and `TOPIC:P,...` name, or else all that the group has an offset for."""
    if not topics:
        if not committed:
            raise Failure(f"{group} has committed nothing: name topics with --topic")
        return sorted(committed)
    # Request all topics: a request for one by name would create it if auto.create.topics.enable is true.
    known = cluster.metadata(cluster.admin).topics
    keys: set[Key] = set()
    for text in topics:
        name, _, numbers = text.partition(":")
        if name not in known:
            raise Failure(f"no topic {name}: `penstock topic list` lists the topics")
        there = known[name].partitions
        wanted = _numbers(text, numbers) if numbers else set(there)
        for missing in sorted(wanted - there.keys()):
            raise Failure(f"{name} has no partition {missing}: its partitions are 0 to {len(there) - 1}")
        keys |= {(name, number) for number in wanted}
    return sorted(keys)


def moved(cluster: Cluster, committed: Offsets, keys: list[Key], goal: Target) -> list[Move]:
    """The new offsets of the partitions, always between log start and log end."""
    starts = _looked_up(cluster, keys, OffsetSpec.earliest())
    ends = _looked_up(cluster, keys, OffsetSpec.latest())
    looked_up = {} if goal.spec is None else _looked_up(cluster, keys, goal.spec)
    moves = []
    for key in keys:
        place = Place(key, starts[key], ends[key], committed.get(key), looked_up.get(key))
        new = max(place.start, min(place.end, goal.offset(place)))
        moves.append(Move(*key, place.committed, new))
    return moves


def commit(cluster: Cluster, group: str, moves: Iterable[Move]) -> None:
    wanted = [TopicPartition(move.topic, move.partition, move.new) for move in moves]
    request = [ConsumerGroupTopicPartitions(group, wanted)]
    done = cluster.wait(cluster.admin.alter_consumer_group_offsets(request)[group], group)
    for partition in done.topic_partitions:
        if partition.error is not None:
            raise Refused(partition.error, f"{group}, {partition.topic} partition {partition.partition}")


def committed_offsets(cluster: Cluster, group: str) -> dict[Key, int]:
    # While a coordinator loads its groups this call can wait; the next one crashes librdkafka 2.16 then.
    cluster.wait(cluster.admin.describe_consumer_groups([group])[group], group)
    requested = cluster.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    found = cluster.wait(requested[group], group).topic_partitions
    return {(p.topic, p.partition): p.offset for p in found if p.offset >= 0}


def partitions_of(cluster: Cluster, topics: Iterable[str]) -> list[Key]:
    """The partitions of topics; deleted topics have none."""
    known = cluster.metadata(cluster.admin).topics
    return [(topic, index) for topic in topics if topic in known for index in known[topic].partitions]


def log_ends(cluster: Cluster, keys: Iterable[Key]) -> dict[Key, int]:
    """The end offsets of the partitions; deleted partitions have none."""
    return _existing(cluster, keys, OffsetSpec.latest())


def log_starts(cluster: Cluster, keys: Iterable[Key]) -> dict[Key, int]:
    """The first offsets of the partitions; deleted partitions have none."""
    return _existing(cluster, keys, OffsetSpec.earliest())


def _existing(cluster: Cluster, keys: Iterable[Key], spec: OffsetSpec) -> dict[Key, int]:
    offsets: dict[Key, int] = {}
    for key in keys:
        try:
            offsets |= _looked_up(cluster, [key], spec)
        except Refused as refusal:
            if refusal.reason != "UNKNOWN_TOPIC_OR_PART":
                raise
    return offsets


def _looked_up(cluster: Cluster, keys: Iterable[Key], spec: OffsetSpec) -> dict[Key, int]:
    partitions = {TopicPartition(*key): spec for key in keys}
    futures = cluster.admin.list_offsets(partitions)
    return {
        (p.topic, p.partition): cluster.wait(future, f"{p.topic} partition {p.partition}").offset
        for p, future in futures.items()
    }


def _looked_up_or_end(place: Place) -> int:
    """The end offset for a partition without a record that late."""
    return place.end if place.looked_up is None or place.looked_up < 0 else place.looked_up


def _committed(place: Place) -> int:
    if place.committed is None:
        topic, partition = place.key
        raise Failure(f"{topic} partition {partition} has no committed offset to shift: try another target")
    return place.committed


def _numbers(text: str, numbers: str) -> set[int]:
    try:
        return {int(number) for number in numbers.split(",")}
    except ValueError:
        misused(f"--topic {text!r} is not TOPIC or TOPIC:PARTITION,...")
