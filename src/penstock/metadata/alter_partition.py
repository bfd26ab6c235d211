"""AlterPartition: decides on the ISR proposal of a leader.

A compare-and-set on leader epoch and partition epoch: any change that the leader has not applied makes the
request void. The ISR may contain only brokers that are up, not shutting down, and of the incarnation that the
leader saw.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.metadata.brokers import check_broker_epoch
from penstock.metadata.election import begin_change
from penstock.metadata.image import RECOVERED, RECOVERING, ClusterImage, PartitionImage
from penstock.metadata.policy import Policy
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.apis.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartition,
    AlterPartitionResponse,
    AlterPartitionResponsePartition,
    AlterPartitionResponseTopic,
    BrokerState,
)
from penstock.wire.metadata_records import PartitionChangeRecord
from penstock.wire.schema import Struct

__all__ = ["alter_partition"]

#: an epoch that a leader does not know, or that version 2 does not carry
_ANY_EPOCH = -1
_NO_CHANGE = -2


def alter_partition(
    image: ClusterImage, policy: Policy, request: AlterPartitionRequest
) -> tuple[list[Struct], AlterPartitionResponse]:
    """Raises STALE_BROKER_EPOCH for a leader that has been replaced; all else is answered by partition."""
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    records: list[Struct] = []
    response = AlterPartitionResponse()
    altered: set[tuple[bytes, int]] = set()
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            key = (topic.topic_id, wanted.partition_index)
            error = _refusal(image, request.broker_id, topic.topic_id, wanted)
            if key in altered:
                # Named twice: the first has made the second out of date.
                error = ErrorCode.INVALID_UPDATE_VERSION
            if error != ErrorCode.NONE:
                answers.append(_failed(wanted, error))
                continue
            altered.add(key)
            partition = image.topics_by_id[TopicId(topic.topic_id)].partitions[wanted.partition_index]
            record = _change(image, policy, partition, wanted)
            if record is not None:
                records.append(record)
            if record is not None and record.leader not in (_NO_CHANGE, request.broker_id):
                # The end of a reassignment has moved the partition from the leader that sent the request.
                answers.append(_failed(wanted, ErrorCode.NEW_LEADER_ELECTED))
            else:
                answers.append(_answer(partition, record))
        response.topics.append(AlterPartitionResponseTopic(topic_id=topic.topic_id, partitions=answers))
    return records, response


def _wanted_isr(wanted: AlterPartitionRequestPartition) -> Sequence[BrokerState]:
    """With epochs, which version 2 does not have."""
    return wanted.new_isr_with_epochs or [
        BrokerState(broker_id=node, broker_epoch=_ANY_EPOCH) for node in wanted.new_isr
    ]


def _refusal(
    image: ClusterImage, sender: int, topic_id: bytes, wanted: AlterPartitionRequestPartition
) -> ErrorCode:
    topic = image.topics_by_id.get(TopicId(topic_id))
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    partition = topic.partitions.get(wanted.partition_index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _out_of_date(partition, sender, wanted) or _unfit(image, partition, wanted)


def _out_of_date(partition: PartitionImage, sender: int, wanted: AlterPartitionRequestPartition) -> ErrorCode:
    if wanted.leader_epoch > partition.leader_epoch or wanted.partition_epoch > partition.partition_epoch:
        # The leader has newer metadata than this node: another node is the controller now.
        return ErrorCode.NOT_CONTROLLER
    if wanted.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if wanted.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return ErrorCode.NONE


def _unfit(
    image: ClusterImage, partition: PartitionImage, wanted: AlterPartitionRequestPartition
) -> ErrorCode:
    states = _wanted_isr(wanted)
    isr = [state.broker_id for state in states]
    if len(set(isr)) != len(isr) or not set(isr) <= set(partition.replicas) or partition.leader not in isr:
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    if wanted.leader_recovery_state == RECOVERING and (
        len(isr) > 1 or partition.leader_recovery == RECOVERED
    ):
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(image, state) for state in states):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _eligible(image: ClusterImage, state: BrokerState) -> bool:
    broker = image.brokers.get(state.broker_id)
    return broker is not None and broker.active and state.broker_epoch in (_ANY_EPOCH, broker.epoch)


def _change(
    image: ClusterImage, policy: Policy, partition: PartitionImage, wanted: AlterPartitionRequestPartition
) -> PartitionChangeRecord | None:
    change = begin_change(image, policy, partition)
    change.isr = [state.broker_id for state in _wanted_isr(wanted)]
    change.recovery = wanted.leader_recovery_state
    return change.build()


def _failed(wanted: AlterPartitionRequestPartition, error: ErrorCode) -> AlterPartitionResponsePartition:
    return AlterPartitionResponsePartition(partition_index=wanted.partition_index, error_code=error)


def _answer(
    partition: PartitionImage, record: PartitionChangeRecord | None
) -> AlterPartitionResponsePartition:
    """The partition as it will be with `record`."""
    answer = AlterPartitionResponsePartition(
        partition_index=partition.index,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery,
        partition_epoch=partition.partition_epoch,
    )
    if record is None:
        return answer
    answer.partition_epoch += 1
    if record.leader != _NO_CHANGE:
        answer.leader_epoch += 1
    if record.isr is not None:
        answer.isr = record.isr
    if record.leader_recovery_state >= 0:
        answer.leader_recovery_state = record.leader_recovery_state
    return answer
