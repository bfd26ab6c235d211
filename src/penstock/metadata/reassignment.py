"""Partition reassignment (KIP-455): start, change, cancel and list.

A reassignment first adds the new replicas beside the old; when the new ones are in the ISR the old ones go
(`PartitionChange` checks that at every change of the ISR). A new order of the same replicas takes effect at
once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.metadata.election import begin_change
from penstock.metadata.image import ClusterImage, Origin, PartitionImage
from penstock.metadata.placement import check_assignment
from penstock.metadata.policy import Policy
from penstock.model.errors import (
    ApiError,
    ErrorCode,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    UnknownTopicOrPartition,
)
from penstock.model.steps import Steps, is_slice_over
from penstock.wire.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from penstock.wire.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from penstock.wire.metadata_records import PartitionChangeRecord
from penstock.wire.schema import Struct

__all__ = [
    "alter_reassignments",
    "cancel_reassignment",
    "list_reassignments",
    "reason_for",
    "start_reassignment",
]


def alter_reassignments(
    image: ClusterImage, policy: Policy, request: AlterPartitionReassignmentsRequest
) -> tuple[list[Struct], AlterPartitionReassignmentsResponse]:
    """No replicas cancel a partition's reassignment. Each partition succeeds or fails for itself."""
    records: list[Struct] = []
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            answer = ReassignablePartitionResponse(partition_index=wanted.partition_index)
            try:
                partition = _find(image, topic.name, wanted.partition_index)
                if wanted.replicas is None:
                    record = cancel_reassignment(image, policy, partition)
                else:
                    if not request.allow_replication_factor_change:
                        _check_factor(partition, wanted.replicas)
                    record = start_reassignment(image, policy, partition, wanted.replicas)
                if record is not None:
                    records.append(record)
            except ApiError as e:
                answer.error_code = e.code
                answer.error_message = str(e)
            answers.append(answer)
        response.responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    return records, response


def list_reassignments(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    """Yields between its slices."""
    ongoing: dict[str, OngoingTopicReassignment] = {}
    for number, (name, partition) in enumerate(_requested(image, request), 1):
        if is_slice_over(number):
            yield
        if partition.reassigning:
            topic = ongoing.setdefault(name, OngoingTopicReassignment(name=name))
            topic.partitions.append(
                OngoingPartitionReassignment(
                    partition_index=partition.index,
                    replicas=partition.replicas,
                    adding_replicas=partition.adding,
                    removing_replicas=partition.removing,
                    reason=reason_for(image, partition),
                )
            )
    return ListPartitionReassignmentsResponse(topics=list(ongoing.values()))


def _requested(
    image: ClusterImage, request: ListPartitionReassignmentsRequest
) -> Iterator[tuple[str, PartitionImage]]:
    if request.topics is None:
        for partition in image.reassigning.values():
            yield image.topics_by_id[partition.topic_id].name, partition
        return
    for wanted in request.topics:
        topic = image.topics.get(wanted.name)
        for index in wanted.partition_indexes if topic is not None else ():
            if topic is not None and index in topic.partitions:
                yield topic.name, topic.partitions[index]


def _find(image: ClusterImage, name: str, index: int) -> PartitionImage:
    topic = image.topics.get(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {name}.")
    partition = topic.partitions.get(index)
    if partition is None:
        raise UnknownTopicOrPartition(f"Unable to find partition {name}:{index}.")
    return partition


def _check_factor(partition: PartitionImage, target: Sequence[int]) -> None:
    factor = len(set(partition.replicas) - set(partition.removing))
    if factor != len(target):
        raise InvalidReplicationFactor(f"The replication factor is changed from {factor} to {len(target)}")


def start_reassignment(
    image: ClusterImage,
    policy: Policy,
    partition: PartitionImage,
    target: Sequence[int],
    origin: Origin = Origin.REQUEST,
) -> PartitionChangeRecord | None:
    """From the replicas as they are, those of a reassignment that this one overtakes included."""
    check_assignment(image, target)
    change = begin_change(image, policy, partition)
    change.origin = origin
    settled = [node for node in partition.replicas if node not in partition.adding]
    change.removing = sorted(node for node in partition.replicas if node not in target)
    change.adding = sorted(node for node in target if node not in settled)
    change.replicas = [*target, *change.removing]
    return change.build()


def reason_for(image: ClusterImage, partition: PartitionImage) -> str:
    """Why the controller itself has started the reassignment; empty for one that was requested.

    A replica of a broker that is up is rebuilt if its data directory has failed.
    """
    if partition.origin == Origin.REBUILD:
        up = [node for node in partition.removing if node in image.brokers and image.brokers[node].active]
        gone = [node for node in partition.removing if node not in up]
        causes = [("gone", gone), ("data directory failed", up)]
        texts = [f"{cause}: {', '.join(map(str, nodes))}" for cause, nodes in causes if nodes]
        return f"self-healing: {'; '.join(texts)}"
    if partition.origin == Origin.SHARE:
        return f"few replicas on: {', '.join(map(str, partition.adding))}"
    return "load" if partition.origin == Origin.LOAD else ""


def cancel_reassignment(
    image: ClusterImage, policy: Policy, partition: PartitionImage
) -> PartitionChangeRecord | None:
    """Back to the replicas that there were, unless only new ones are in the ISR: that would lose records."""
    if not partition.reassigning:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    change = begin_change(image, policy, partition)
    change.replicas = [node for node in partition.replicas if node not in partition.adding]
    change.isr = [node for node in partition.isr if node not in partition.adding]
    name = image.topics_by_id[partition.topic_id].name
    if not change.isr and not policy.unclean(image, name):
        raise InvalidReplicaAssignment(
            f"Unable to revert partition assignment for {name}:{partition.index} because it would require an "
            "unclean leader election."
        )
    change.adding = change.removing = ()
    return change.build()
