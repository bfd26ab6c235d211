"""GetReplicaLogInfo: log end offsets of this broker's replicas, by which the controller elects a leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.base.context import Context
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import Slot
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import ErrorCode
from penstock.model.ids import TopicId
from penstock.wire.apis.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

__all__ = ["ReplicaLogInfoHandlers"]

_NO_EPOCH: Final = -1
_MOST_PARTITIONS: Final = 1000


class ReplicaLogInfoHandlers:
    """GetReplicaLogInfo."""

    def __init__(self, broker_epoch: Callable[[], int], partitions: Partitions) -> None:
        self._broker_epoch = broker_epoch
        self._partitions = partitions

    def get_replica_log_info(
        self, context: Context, request: GetReplicaLogInfoRequest
    ) -> GetReplicaLogInfoResponse:
        """Answers for the first 1,000 partitions. The broker epoch is that of this process's registration."""
        response = GetReplicaLogInfoResponse(broker_epoch=self._broker_epoch())
        left = _MOST_PARTITIONS
        for topic in request.topic_partitions or ():
            indexes = topic.partitions[:left]
            left -= len(indexes)
            response.truncated = response.truncated or len(indexes) < len(topic.partitions)
            infos = [
                _log_info(index, self._partitions.find(TopicId(topic.topic_id), index)) for index in indexes
            ]
            response.topic_partition_log_info_list.append(
                TopicPartitionLogInfo(topic_id=topic.topic_id, partition_log_info=infos)
            )
        return response


def _log_info(index: int, slot: Slot) -> PartitionLogInfo:
    if not isinstance(slot, Partition):
        return PartitionLogInfo(partition=index, error_code=slot)
    if slot.directory.health.offline is not None:
        return PartitionLogInfo(partition=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    log = slot.log
    return PartitionLogInfo(
        partition=index,
        last_written_leader_epoch=log.leader_epochs.latest,
        current_leader_epoch=slot.leader_epoch,
        log_end_offset=log.end_offset,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        is_damaged=bool(log.recovery.corruption) or log.explained_start < log.log_start_offset,
        explained_start_offset=log.explained_start,
    )
