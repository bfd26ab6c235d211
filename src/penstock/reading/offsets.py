"""Offsets: as Spark keeps them (JSON by topic and partition), and where a query says it starts and ends.

The JSON is `{"topic": {"0": 23}}` with sorted keys, as of Spark's Kafka connector: Spark compares offsets as
text. Resolving what a query says ("earliest", "latest", a time) takes a cluster; nothing else here does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import msgspec

from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicPartition
from penstock.net.peer_errors import PeerGone
from penstock.reading.connection import Attempts, Cluster
from penstock.reading.errors import WrongOption
from penstock.wire.apis.list_offsets import (
    LIST_OFFSETS,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from penstock.wire.routing import Address, Reaction, reaction_to

__all__ = [
    "EARLIEST",
    "LATEST",
    "ListOffsets",
    "Offsets",
    "Position",
    "from_json",
    "list_offsets",
    "parse_partition_map",
    "resolve",
    "resolved",
    "to_json",
]

Offsets: TypeAlias = dict[TopicPartition, int]
#: by partition the offset of EARLIEST, LATEST, or a time in milliseconds (-1 if nothing is so late)
ListOffsets: TypeAlias = Callable[[Mapping[TopicPartition, int]], Offsets]
LATEST: Final = -1
EARLIEST: Final = -2
_NO_OFFSET: Final = -1


@dataclass(frozen=True, slots=True)
class Position:
    """Where a query starts or ends: one of three ways of saying so."""

    #: EARLIEST or LATEST for all partitions that `exact` does not name
    default: int = EARLIEST
    #: an offset, EARLIEST or LATEST for every partition, or none
    exact: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: or the first offset at or after a time: of all partitions, or of each
    timestamp_ms: int | None = None
    timestamps_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    #: whether a partition with nothing so late is read from (or to) its end; otherwise that is an error
    latest_if_none: bool = True


def to_json(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """The JSON of offsets that Spark stores, with sorted keys."""
    tree: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        tree.setdefault(topic, {})[str(partition)] = offset
    return tree


def from_json(tree: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of `to_json`."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in tree.items()
        for partition, offset in partitions.items()
    }


def parse_partition_map(option: str, text: str) -> Offsets:
    """The value of an option like `{"topic": {"0": 23, "1": -2}}`."""
    try:
        return from_json(msgspec.json.decode(text, type=dict[str, dict[str, int]]))
    except (msgspec.MsgspecError, ValueError) as e:
        raise WrongOption(f'{option} must look like {{"topic": {{"0": 23}}}}, not {text}: {e}') from e


def resolve(
    cluster: Cluster, position: Position, partitions: Iterable[TopicPartition], *, committed: bool
) -> Offsets:
    """The offsets that `position` means in `partitions` now."""
    return resolved(position, partitions, partial(list_offsets, cluster, committed=committed))


def resolved(position: Position, partitions: Iterable[TopicPartition], listed: ListOffsets) -> Offsets:
    """The same for whatever lists offsets as a cluster does."""
    wanted = sorted(partitions)
    if position.timestamp_ms is not None or position.timestamps_ms:
        return _by_time(position, wanted, listed)
    if position.exact:
        _check_covers("specific offsets", position.exact, wanted)
    positions = {partition: position.exact.get(partition, position.default) for partition in wanted}
    symbolic = {partition: at for partition, at in positions.items() if at < 0}
    return positions | listed(symbolic)


def _by_time(position: Position, wanted: list[TopicPartition], listed: ListOffsets) -> Offsets:
    if position.timestamp_ms is not None:
        times = dict.fromkeys(wanted, position.timestamp_ms)
    else:
        _check_covers("timestamps", position.timestamps_ms, wanted)
        times = dict(position.timestamps_ms)
    found = listed(times)
    missing = [partition for partition, offset in found.items() if offset == _NO_OFFSET]
    if missing and not position.latest_if_none:
        raise WrongOption(
            f"{missing[0]} has nothing at or after timestamp {times[missing[0]]}: "
            "startingOffsetsByTimestampStrategy=latest would start at its end"
        )
    return found | listed(dict.fromkeys(missing, LATEST))


def _check_covers(what: str, named: Mapping[TopicPartition, int], wanted: list[TopicPartition]) -> None:
    if set(named) != set(wanted):
        different = ", ".join(sorted(map(str, set(named) ^ set(wanted))))
        raise WrongOption(f"{what} must name every partition, and no other: {different}")


def list_offsets(cluster: Cluster, positions: Mapping[TopicPartition, int], *, committed: bool) -> Offsets:
    """By partition the offset of EARLIEST, LATEST, or a time in milliseconds (-1 if nothing is so late).

    A partition that moves to another leader meanwhile is requested again there.
    """
    found: Offsets = {}
    attempts = Attempts(cluster.endpoint.total_timeout_s)
    while left := {partition: at for partition, at in positions.items() if partition not in found}:
        try:
            for address, part in _by_leader(cluster, left).items():
                found |= _list_at_leader(cluster, address, part, committed)
        except (PeerGone, ApiError) as e:
            if isinstance(e, ApiError) and reaction_to(e.code) is Reaction.FAIL:
                raise
            attempts.failed(e)
            cluster.refresh({partition.topic for partition in left})
    return found


def _by_leader(
    cluster: Cluster, positions: Mapping[TopicPartition, int]
) -> dict[Address, dict[TopicPartition, int]]:
    parts: dict[Address, dict[TopicPartition, int]] = {}
    for partition, at in positions.items():
        parts.setdefault(cluster.leader(*partition), {})[partition] = at
    return parts


def _list_at_leader(
    cluster: Cluster, address: Address, positions: Mapping[TopicPartition, int], committed: bool
) -> Offsets:
    topics: dict[str, ListOffsetsTopic] = {}
    for (name, partition), at in positions.items():
        topic = topics.setdefault(name, ListOffsetsTopic(name=name, partitions=[]))
        topic.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=at))
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=int(committed), topics=list(topics.values()), timeout_ms=10_000
    )
    response = cluster.call(address, LIST_OFFSETS, request)
    return {
        TopicPartition(topic.name, answer.partition_index): _offset(topic.name, answer)
        for topic in response.topics
        for answer in topic.partitions
    }


def _offset(topic: str, answer: ListOffsetsPartitionResponse) -> int:
    if answer.error_code:
        code = ErrorCode(answer.error_code)
        raise ApiError(code, f"offsets of {topic}-{answer.partition_index}: {code.name}")
    return answer.offset
