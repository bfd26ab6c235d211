"""Placement of replicas and leaders: ongoing moves, preferred leaders."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.console.kafka.cluster import Cluster, check
from penstock.console.views.samples import Key
from penstock.model.errors import ErrorCode
from penstock.wire.apis.elect_leaders import ELECT_LEADERS, ElectLeadersRequest, TopicPartitions
from penstock.wire.apis.list_partition_reassignments import (
    LIST_PARTITION_REASSIGNMENTS,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

__all__ = ["elect_preferred", "list_moves"]

_PREFERRED = 0


async def list_moves(cluster: Cluster) -> ListPartitionReassignmentsResponse:
    request = ListPartitionReassignmentsRequest(timeout_ms=_ms(cluster), topics=None)
    response = await cluster.send(LIST_PARTITION_REASSIGNMENTS, request)
    check(response.error_code, response.error_message, "reassignments")
    return response


async def elect_preferred(cluster: Cluster, keys: Sequence[Key] | None) -> int:
    """Make the first replica the leader, of all partitions by default; returns the number of elections."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in keys or ():
        by_topic.setdefault(topic, []).append(partition)
    wanted = [TopicPartitions(topic=topic, partitions=found) for topic, found in by_topic.items()]
    request = ElectLeadersRequest(
        election_type=_PREFERRED,
        topic_partitions=None if keys is None else wanted,
        timeout_ms=_ms(cluster),
    )
    response = await cluster.send(ELECT_LEADERS, request, changes=True)
    check(response.error_code, None, "the election")
    elected = 0
    for result in response.replica_election_results:
        for p in result.partition_result:
            if p.error_code != ErrorCode.ELECTION_NOT_NEEDED:
                check(p.error_code, p.error_message, f"{result.topic}-{p.partition_id}")
                elected += 1
    return elected


def _ms(cluster: Cluster) -> int:
    return int(cluster.timeout_s * 1000)
