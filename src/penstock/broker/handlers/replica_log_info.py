"""GetReplicaLogInfo: log end offsets of this broker's replicas, by which the controller elects a leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.broker.base.context import Context
from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partition_table import Slot
from penstock.broker.replica.partitions import Partitions
from penstock.broker.replica.tail_cuts import due_cut
from penstock.model.errors import ApiError, ErrorCode
from penstock.model.ids import TopicId
from penstock.ports import Workers
from penstock.records.batch import HEADER, HEADER_SIZE
from penstock.records.header_fields import CRC
from penstock.storage.chain import check_again
from penstock.storage.log import Log
from penstock.storage.scan import read_bytes
from penstock.wire.apis.get_replica_log_info import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    PartitionLogInfo,
    TopicPartitionLogInfo,
)

__all__ = ["ReplicaLogInfoHandlers"]

_NO_EPOCH: Final = -1
_UNKNOWN: Final = -1
_MOST_PARTITIONS: Final = 1000
#: the most leader epochs of a replica that a report has
_MOST_EPOCHS: Final = 32


class ReplicaLogInfoHandlers:
    """GetReplicaLogInfo."""

    def __init__(self, broker_epoch: Callable[[], int], partitions: Partitions, workers: Workers) -> None:
        self._broker_epoch = broker_epoch
        self._partitions = partitions
        self._workers = workers

    async def get_replica_log_info(
        self, context: Context, request: GetReplicaLogInfoRequest
    ) -> GetReplicaLogInfoResponse:
        """Answers for the first 1,000 partitions. The broker epoch is that of this process's registration."""
        response = GetReplicaLogInfoResponse(broker_epoch=self._broker_epoch())
        left = _MOST_PARTITIONS
        for topic in request.topic_partitions or ():
            indexes = topic.partitions[:left]
            left -= len(indexes)
            response.truncated = response.truncated or len(indexes) < len(topic.partitions)
            topic_id = TopicId(topic.topic_id)
            batches = {
                index: await self._batch(self._partitions.find(topic_id, index), offset)
                for index, offset in zip(indexes, topic.batches_at, strict=False)
                if offset >= 0
            }
            infos = [_log_info(index, self._partitions.find(topic_id, index)) for index in indexes]
            for info in infos:
                info.batch_checksum, info.gaps_to = batches.get(info.partition, (_UNKNOWN, _UNKNOWN))
            response.topic_partition_log_info_list.append(
                TopicPartitionLogInfo(topic_id=topic.topic_id, partition_log_info=infos)
            )
        return response

    async def _batch(self, slot: Slot, offset: int) -> tuple[int, int]:
        """The checksum of the batch with `offset`, by its header, and up to where offsets may be missing.

        -1 if there is no such batch or it is damaged. A follower asks about a batch that does not continue
        the one before it, so the segment is checked once more.
        """
        if not isinstance(slot, Partition):
            return _UNKNOWN, _UNKNOWN
        log = slot.log
        check_again(log.segments.holding(offset))

        def read() -> int:
            found = log.read(offset, 1, upper=log.end_offset, cached_only=True)
            if found is None:
                return _UNKNOWN
            header = HEADER.unpack(read_bytes(found.file, HEADER_SIZE, found.position, True))
            return int(header[CRC])

        try:
            checksum = await retry_when_cached(slot, self._workers, read)
        except ApiError:
            checksum = _UNKNOWN
        return checksum, _gaps_to(log, offset)


def _gaps_to(log: Log, offset: int) -> int:
    """The end of the compacted part of a log that `offset` is in; 0 if it is in none."""
    if log.config.compact:
        return log.end_offset
    end = 0
    for segment in log.segments.since(offset):
        if not segment.is_compacted:
            break
        following = log.segments.after(segment)
        end = log.end_offset if following is None else following.base_offset
    return end


def _damaged_to(log: Log) -> int:
    """The offset behind the last damage of a log; if its start is not explained, that is damage, too."""
    unexplained = log.log_start_offset if log.explained_start < log.log_start_offset else _UNKNOWN
    return max((damage.next_offset for damage in log.recovery.corruption), default=unexplained)


def _sound_end(log: Log) -> int:
    """The offset behind the last record in front of damage that reaches the end of a log; -1 without any."""
    end = log.end_offset
    for damage in sorted(log.recovery.corruption, key=lambda each: each.first_offset, reverse=True):
        if damage.next_offset < end:
            break
        end = min(end, damage.first_offset)
    return end if end < log.end_offset else _UNKNOWN


def _log_info(index: int, slot: Slot) -> PartitionLogInfo:
    if not isinstance(slot, Partition):
        return PartitionLogInfo(partition=index, error_code=slot)
    if slot.directory.health.offline is not None:
        return PartitionLogInfo(partition=index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    log = slot.log
    # A log that is to be cut is not that of the leader epoch yet: its end would count for too much.
    is_cut = due_cut(slot, slot.leader_epoch) is None
    return PartitionLogInfo(
        partition=index,
        last_written_leader_epoch=log.leader_epochs.latest,
        current_leader_epoch=slot.leader_epoch if is_cut else _NO_EPOCH,
        log_end_offset=log.end_offset,
        log_start_offset=log.log_start_offset,
        high_watermark=log.high_watermark,
        is_damaged=bool(log.recovery.corruption) or log.explained_start < log.log_start_offset,
        damaged_to=_damaged_to(log),
        sound_end_offset=_sound_end(log),
        explained_start_offset=log.explained_start,
        leader_epochs=log.leader_epochs.newest(_MOST_EPOCHS),
    )
