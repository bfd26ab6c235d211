"""Decisions about leaders: elections that a client asks for, and those that balance the brokers' load.

The rules of an election are in `partition_change`; `begin_change` starts one from the image and the policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import IntEnum
from functools import partial
from typing import Final

from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage
from penstock.metadata.partition_change import Election, PartitionChange
from penstock.metadata.policy import Policy, min_isr
from penstock.model.errors import ApiError, ErrorCode, InvalidRequest, UnknownTopicOrPartition
from penstock.wire.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.wire.metadata_records import PartitionChangeRecord
from penstock.wire.schema import Struct

__all__ = [
    "ElectionType",
    "balance_leaders",
    "begin_change",
    "elect_leader",
    "elect_leaders",
    "elect_unclean",
    "lead_elsewhere",
]

#: elections that one decision may make, so that no other decision waits long for it
MOST_ELECTIONS: Final = 1000
_NOBODY: Final = -1


class ElectionType(IntEnum):
    """What ElectLeaders can ask for."""

    PREFERRED = 0
    UNCLEAN = 1


def begin_change(
    image: ClusterImage,
    policy: Policy,
    partition: PartitionImage,
    *,
    leaving: int = _NOBODY,
    joining: int = _NOBODY,
) -> PartitionChange:
    """A change that wants what is; `leaving` may not lead, `joining` may though it is still fenced."""
    name = image.topics_by_id[partition.topic_id].name

    def acceptable(node: int) -> bool:
        broker = image.brokers.get(node)
        return node != leaving and broker is not None and (node == joining or broker.active)

    change = PartitionChange(
        partition,
        acceptable,
        partial(min_isr, image, name),
        Election.UNCLEAN if policy.unclean(image, name) else Election.ONLINE,
    )
    change.avoided = policy.clocks_off
    return change


def elect_leaders(
    image: ClusterImage, policy: Policy, request: ElectLeadersRequest
) -> tuple[list[Struct], ElectLeadersResponse]:
    """Of all partitions when none are named; then those that have the right leader are not mentioned."""
    if request.election_type not in ElectionType.__members__.values():
        raise InvalidRequest(f"Unknown election type {request.election_type}; it must be 0 or 1")
    kind = ElectionType(request.election_type)
    everywhere = request.topic_partitions is None
    wanted: Iterable[tuple[str, Iterable[int]]] = (
        ((topic.name, topic.partitions) for topic in image.topics.values())
        if request.topic_partitions is None
        else ((topic.topic, topic.partitions) for topic in request.topic_partitions)
    )
    records: list[Struct] = []
    response = ElectLeadersResponse()
    for name, indexes in wanted:
        results = []
        for index in dict.fromkeys(indexes):
            result = PartitionResult(partition_id=index)
            try:
                records.append(elect_leader(image, policy, name, index, kind))
            except ApiError as e:
                if everywhere and e.code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                result.error_code = e.code
                result.error_message = str(e)
            results.append(result)
        response.replica_election_results.append(ReplicaElectionResult(topic=name, partition_result=results))
    return records, response


def elect_leader(
    image: ClusterImage, policy: Policy, topic: str, index: int, kind: ElectionType
) -> PartitionChangeRecord:
    known = image.topics.get(topic)
    if known is None:
        raise UnknownTopicOrPartition(f"No such topic as {topic}")
    partition = known.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"No such partition as {topic}-{index}")
    preferred = kind is ElectionType.PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "The partition already has the leader that is wanted")
    change = begin_change(image, policy, partition)
    change.election = Election.PREFERRED if preferred else Election.UNCLEAN
    record = change.build()
    if record is not None:
        return record
    if preferred:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Broker {partition.replicas[0]}, the preferred leader, is not in the ISR or not up",
        )
    raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "None of the replicas is up")


def elect_unclean(image: ClusterImage, policy: Policy) -> list[Struct]:
    """Leaders for partitions that have none, in topics that would rather lose records than wait.

    To be asked after `unclean.leader.election.enable` was altered: otherwise brokers that come and go ask it.
    """
    records: list[Struct] = []
    for partition in image.partitions:
        if len(records) == MOST_ELECTIONS:
            break
        if partition.leader != NO_LEADER:
            continue
        record = begin_change(image, policy, partition).build()
        if record is not None:
            records.append(record)
    return records


def balance_leaders(image: ClusterImage, policy: Policy, percentage: int) -> list[Struct]:
    """Give partitions back to their preferred leaders.

    Only those of brokers that lead too few: more than `percentage` of the partitions that prefer them are led
    by others (`leader.imbalance.per.broker.percentage`). Asks for at most `MOST_ELECTIONS` at a time.
    """
    preferred: Counter[int] = Counter()
    astray: dict[int, list[PartitionImage]] = {}
    for partition in image.partitions:
        node = partition.replicas[0]
        preferred[node] += 1
        if partition.leader != node:
            astray.setdefault(node, []).append(partition)
    records: list[Struct] = []
    for node, partitions in sorted(astray.items()):
        if len(partitions) * 100 <= percentage * preferred[node]:
            continue
        for partition in partitions:
            change = begin_change(image, policy, partition)
            change.election = Election.PREFERRED
            record = change.build()
            if record is not None and record.leader == node:
                records.append(record)
            if len(records) == MOST_ELECTIONS:
                return records
    return records


def lead_elsewhere(image: ClusterImage, policy: Policy, broker_id: int) -> list[Struct]:
    """Move leaderships from a broker whose clock is wrong to in-sync replicas whose clocks are right.

    The broker stays in the ISR. Returns at most `MOST_ELECTIONS` records; the rest follows at the next
    heartbeat.
    """
    records: list[Struct] = []
    for partition in image.partitions_on(broker_id):
        if len(records) == MOST_ELECTIONS:
            break
        if partition.leader == broker_id and len(partition.isr) > 1:
            change = begin_change(image, policy, partition)
            change.election = Election.ELSEWHERE
            record = change.build()
            if record is not None:
                records.append(record)
    return records
