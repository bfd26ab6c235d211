"""ElectLeaders: elections on request of a client.

An unclean election chooses the most complete of the replicas that have reported, as an aggressive recovery
does (`unclean_recovery`). The reports are collected before the decision, which makes no requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum

from penstock.metadata.election import begin_change
from penstock.metadata.image import NO_LEADER, ClusterImage, PartitionImage, PartitionKey
from penstock.metadata.partition_change import Election
from penstock.metadata.policy import Policy, Strategy
from penstock.metadata.unclean_recovery import Reports, recover
from penstock.model.errors import ApiError, ErrorCode, InvalidRequest, UnknownTopicOrPartition
from penstock.model.steps import Steps, is_slice_over
from penstock.wire.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from penstock.wire.metadata_records import PartitionChangeRecord
from penstock.wire.schema import Struct

__all__ = ["ElectionType", "elect_leader", "elect_leaders", "partitions_to_recover"]


class ElectionType(IntEnum):
    """The election types of ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


def partitions_to_recover(image: ClusterImage, request: ElectLeadersRequest) -> list[PartitionImage]:
    """The partitions whose replicas have to report before the request is decided on."""
    if request.election_type != ElectionType.UNCLEAN:
        return []
    return [
        topic.partitions[index]
        for name, indexes in _wanted(image, request)
        if (topic := image.topics.get(name)) is not None
        for index in dict.fromkeys(indexes)
        if index in topic.partitions and topic.partitions[index].leader == NO_LEADER
    ]


def _wanted(image: ClusterImage, request: ElectLeadersRequest) -> Iterator[tuple[str, Iterable[int]]]:
    if request.topic_partitions is None:
        yield from ((topic.name, topic.partitions) for topic in image.topics.values())
    else:
        yield from ((topic.topic, topic.partitions) for topic in request.topic_partitions)


def elect_leaders(
    image: ClusterImage,
    policy: Policy,
    request: ElectLeadersRequest,
    reports: Mapping[PartitionKey, Reports] | None = None,
) -> Steps[tuple[list[Struct], ElectLeadersResponse]]:
    """Of all partitions when none are named; then those that have the right leader are not mentioned.

    Yields between its slices. `reports` are what the replicas of `partitions_to_recover` have answered.
    """
    if request.election_type not in ElectionType.__members__.values():
        raise InvalidRequest(f"Unknown election type {request.election_type}; it must be 0 or 1")
    kind = ElectionType(request.election_type)
    everywhere = request.topic_partitions is None
    records: list[Struct] = []
    response = ElectLeadersResponse()
    number = 0
    for name, indexes in _wanted(image, request):
        results = []
        for index in dict.fromkeys(indexes):
            number += 1
            if is_slice_over(number):
                yield
            result = PartitionResult(partition_id=index)
            try:
                records.append(elect_leader(image, policy, name, index, kind, reports or {}))
            except ApiError as e:
                if everywhere and e.code == ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                result.error_code = e.code
                result.error_message = str(e)
            results.append(result)
        response.replica_election_results.append(ReplicaElectionResult(topic=name, partition_result=results))
    return records, response


def elect_leader(
    image: ClusterImage,
    policy: Policy,
    topic: str,
    index: int,
    kind: ElectionType,
    reports: Mapping[PartitionKey, Reports] | None = None,
) -> PartitionChangeRecord:
    known = image.topics.get(topic)
    if known is None:
        raise UnknownTopicOrPartition(f"No such topic as {topic}")
    partition = known.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"No such partition as {topic}-{index}")
    preferred = kind is ElectionType.PREFERRED
    if partition.leader == partition.replicas[0] if preferred else partition.leader != NO_LEADER:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "The partition already has the wanted leader")
    return (
        _elect_preferred(image, policy, partition)
        if preferred
        else _elect_unclean(image, policy, partition, (reports or {}).get(partition.key, {}))
    )


def _elect_preferred(image: ClusterImage, policy: Policy, partition: PartitionImage) -> PartitionChangeRecord:
    change = begin_change(image, policy, partition)
    change.election = Election.PREFERRED
    record = change.build()
    if record is None:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"Broker {partition.replicas[0]}, the preferred leader, is not in the ISR or not up",
        )
    return record


def _elect_unclean(
    image: ClusterImage, policy: Policy, partition: PartitionImage, reports: Reports
) -> PartitionChangeRecord:
    recovery = recover(image, policy, partition, Strategy.AGGRESSIVE, reports, patient=False)
    if recovery.record is None:
        waiting = ", ".join(f"broker {node}: {why}" for node, why in recovery.waiting_for.items())
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"No replica has reported its log ({waiting or 'none of their brokers is registered'})",
        )
    return recovery.record
