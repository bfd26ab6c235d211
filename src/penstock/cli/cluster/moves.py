"""Moves replicas between brokers: reads the replicas of a cluster, makes a plan, and starts it.

Plans have the format of Kafka's own tool, so each tool can execute the plans of the other.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from penstock.cli.cluster.healing import controller_configs
from penstock.cli.cluster.planner import image_of, moves_of
from penstock.cli.direct import DirectLine, refuse
from penstock.cli.failure import Failure, misused
from penstock.metadata.image import ClusterImage
from penstock.metadata.rebalance import Move, plan_rebalance
from penstock.model.addresses import address_text
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicPartition
from penstock.wire.apis.alter_partition_reassignments import (
    ALTER_PARTITION_REASSIGNMENTS,
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.apis.describe_cluster import DESCRIBE_CLUSTER, DescribeClusterRequest
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from penstock.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    OngoingPartitionReassignment,
)
from penstock.wire.apis.metadata import METADATA, MetadataRequest

__all__ = [
    "EXCLUDED",
    "Move",
    "await_moves",
    "cancel_moves",
    "elect_preferred",
    "excluded_brokers",
    "move_states",
    "ongoing_moves",
    "plan_moves",
    "read_image",
    "read_plan",
    "start_moves",
    "written_plan",
]

#: the config with the brokers that receive no replicas automatically
EXCLUDED: Final = "penstock.balance.exclude.brokers"
_PAUSE_S: Final = 0.1
_PLAN_VERSION: Final = 1
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
_FINE: Final = frozenset(
    {ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
)


class _Placement(msgspec.Struct):
    topic: str
    partition: _Number
    replicas: list[_Number]


class _Plan(msgspec.Struct):
    """The JSON of Kafka's tool; other fields, such as `log_dirs`, are ignored."""

    partitions: list[_Placement]
    version: Literal[1] = _PLAN_VERSION


class MoveState(NamedTuple):
    """The state of a planned move: `done`, `moving`, or `not begun`."""

    move: Move
    state: str
    replicas: Sequence[int]


def read_image(line: DirectLine) -> ClusterImage:
    """The cluster's brokers and replicas, as far as plans need them."""
    cluster = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest(include_fenced_brokers=True))
    refuse(cluster.error_code, cluster.error_message, "the cluster")
    moving = ongoing_moves(line)
    metadata = line.send(METADATA, MetadataRequest(topics=None, allow_auto_topic_creation=False))
    return image_of(cluster.brokers, metadata, moving)


def plan_moves(
    line: DirectLine,
    *,
    leaving: Collection[int] = (),
    avoided: Collection[int] = (),
    topics: Collection[str] = (),
) -> list[Move]:
    """Few moves that balance the brokers, of some topics or all; `leaving` brokers end up empty.

    Brokers in penstock.balance.exclude.brokers receive nothing, and neither do those that are `avoided`.
    """
    image = read_image(line)
    for name in topics:
        if name not in image.topics:
            raise Failure(f"there is no topic {name}: `penstock topic list` lists the topics")
    for broker in leaving:
        if broker not in image.brokers:
            raise Failure(f"there is no broker {broker}: `penstock cluster status` lists the brokers")
    moves = plan_rebalance(image, {}, leaving=leaving, excluded=[*excluded_brokers(line), *avoided])
    return [move for move in moves if not topics or move.partition.topic in topics]


def excluded_brokers(line: DirectLine) -> list[int]:
    """The brokers that receive no replicas, in the configs of the controller."""
    cluster = line.send(DESCRIBE_CLUSTER, DescribeClusterRequest())
    addresses = {broker.broker_id: address_text(broker.host, broker.port) for broker in cluster.brokers}
    configs = controller_configs(line, cluster.controller_id, addresses, [EXCLUDED])
    return [int(each) for each in (configs.get(EXCLUDED) or "").split(",") if each.strip()]


def start_moves(line: DirectLine, moves: Iterable[Move]) -> None:
    """Start all moves; a Failure names the first that the controller refuses."""
    _alter(line, {move.partition: move.replicas for move in moves})


def cancel_moves(line: DirectLine, partitions: Iterable[TopicPartition]) -> None:
    """Cancel unfinished moves; finished ones stay."""
    _alter(line, dict.fromkeys(partitions))


def ongoing_moves(line: DirectLine) -> dict[TopicPartition, OngoingPartitionReassignment]:
    request = ListPartitionReassignmentsRequest(timeout_ms=_milliseconds(line), topics=None)
    response = line.send(LIST_PARTITION_REASSIGNMENTS, request)
    refuse(response.error_code, response.error_message, "the list of reassignments")
    return moves_of(response)


def await_moves(line: DirectLine, partitions: Collection[TopicPartition], timeout_s: float) -> None:
    """Wait until none of them is in progress."""
    deadline = time.monotonic() + timeout_s
    partitions = set(partitions)
    while left := partitions & ongoing_moves(line).keys():
        if time.monotonic() > deadline:
            raise Failure(
                f"{len(left)} of {len(partitions)} partitions still move after {timeout_s:g} s, and "
                f"continue: "
                f"`penstock partition reassign list` shows them"
            )
        time.sleep(_PAUSE_S)


def move_states(line: DirectLine, moves: Iterable[Move]) -> list[MoveState]:
    """The state of each move of a plan."""
    image, moving = read_image(line), ongoing_moves(line)
    states = []
    for move in moves:
        topic = image.topics.get(move.partition.topic)
        partition = topic.partitions.get(move.partition.partition) if topic is not None else None
        replicas = [] if partition is None else partition.replicas
        if move.partition in moving:
            state = "moving"
        else:
            state = "done" if list(replicas) == move.replicas else "not begun"
        states.append(MoveState(move, state, replicas))
    return states


def elect_preferred(line: DirectLine, partitions: Iterable[TopicPartition]) -> None:
    """Make the first replica of each partition the leader, if it is in sync."""
    topics = [
        TopicPartitions(topic=name, partitions=indexes) for name, indexes in _by_topic(partitions).items()
    ]
    request = ElectLeadersRequest(election_type=0, topic_partitions=topics, timeout_ms=_milliseconds(line))
    response = line.send(ELECT_LEADERS, request)
    refuse(response.error_code, None, "electing leaders")
    for topic in response.replica_election_results:
        for partition in topic.partition_result:
            if partition.error_code not in _FINE:
                about = f"leader of {topic.topic}-{partition.partition_id}"
                refuse(partition.error_code, partition.error_message, about)


def written_plan(moves: Iterable[Move]) -> dict[str, Any]:
    """A plan as the text of a file."""
    partitions = [
        {"topic": m.partition.topic, "partition": m.partition.partition, "replicas": list(m.replicas)}
        for m in moves
    ]
    return {"version": _PLAN_VERSION, "partitions": partitions}


def read_plan(path: Path) -> list[Move]:
    """The plan in a file; `-` reads standard input."""
    try:
        content = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
    except OSError as error:
        misused(f"cannot read {path}: {error.strerror}")
    try:
        plan = msgspec.json.decode(content, type=_Plan)
    except msgspec.DecodeError as error:
        misused(f"{path} is not a plan: {error}; `penstock partition reassign plan` makes one")
    return [Move(TopicPartition(each.topic, each.partition), each.replicas) for each in plan.partitions]


def _alter(line: DirectLine, wanted: Mapping[TopicPartition, list[int] | None]) -> None:
    topics = [
        ReassignableTopic(
            name=name,
            partitions=[
                ReassignablePartition(partition_index=i, replicas=wanted[TopicPartition(name, i)])
                for i in indexes
            ],
        )
        for name, indexes in _by_topic(wanted).items()
    ]
    request = AlterPartitionReassignmentsRequest(timeout_ms=_milliseconds(line), topics=topics)
    response = line.send(ALTER_PARTITION_REASSIGNMENTS, request)
    refuse(response.error_code, response.error_message, "the reassignment")
    for topic in response.responses:
        for partition in topic.partitions:
            about = f"{topic.name}-{partition.partition_index}"
            refuse(partition.error_code, partition.error_message, about)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for partition in partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    return topics


def _milliseconds(line: DirectLine) -> int:
    return int(line.timeout_s * 1000)
