"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from penstock.broker.base.context import Context
from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.replica.commits import knows_latest_offset
from penstock.broker.replica.leadership import Leadership
from penstock.broker.replica.partition import Partition
from penstock.broker.replica.partitions import Partitions
from penstock.model.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    InvalidTopic,
    OffsetOutOfRange,
    PolicyViolation,
    StorageError,
    UnsupportedVersion,
)
from penstock.model.ids import COORDINATOR_TOPICS
from penstock.net.listener import Listener
from penstock.ports import Workers
from penstock.records.batch import is_long
from penstock.storage.directory import DataDirectory
from penstock.storage.lookup import DatedBatch
from penstock.wire.apis.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from penstock.wire.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from penstock.wire.apis.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

__all__ = ["OffsetHandlers"]

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6

#: the first version that supports each special timestamp
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
#: above every version
_NEVER: Final = 1 << 15
_READ_COMMITTED: Final = 1
_HIGH_WATERMARK: Final = -1
_NOT_AVAILABLE_FROM: Final = 5
_ANY_EPOCH: Final = -1


class _Reader(Enum):
    """The kind of reader, which determines the offset up to which it may read."""

    CLIENT = auto()
    #: a client that reads committed transactions only
    COMMITTED = auto()
    FOLLOWER = auto()


class OffsetHandlers:
    """ListOffsets, OffsetForLeaderEpoch and DeleteRecords."""

    def __init__(self, internal: Listener | None, workers: Workers, partitions: Partitions) -> None:
        self._internal = internal
        self._workers = workers
        self._partitions = partitions

    async def list_offsets(self, context: Context, request: ListOffsetsRequest) -> ListOffsetsResponse:
        reader = self._reader(context, request)
        response = ListOffsetsResponse()
        counts = Counter(
            (topic.name, p.partition_index) for topic in request.topics for p in topic.partitions
        )
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                answer = ListOffsetsPartitionResponse(partition_index=wanted.partition_index)
                answers.append(answer)
                try:
                    if counts[topic.name, wanted.partition_index] > 1:
                        raise InvalidRequest
                    await self._list_offset(context, topic.name, wanted, reader, answer)
                except ApiError as e:
                    answer.error_code = e.code
            response.topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
        return response

    def _reader(self, context: Context, request: ListOffsetsRequest) -> _Reader:
        internal = self._internal
        if internal is not None and context.listener is internal and request.replica_id >= 0:
            return _Reader.FOLLOWER
        return _Reader.COMMITTED if request.isolation_level == _READ_COMMITTED else _Reader.CLIENT

    async def _list_offset(
        self,
        context: Context,
        topic: str,
        wanted: ListOffsetsPartition,
        reader: _Reader,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        timestamp = wanted.timestamp
        if timestamp < EARLIEST and context.version < _SINCE.get(timestamp, _NEVER):
            raise UnsupportedVersion
        partition = self._find(topic, wanted.partition_index)
        partition.check_leader_epoch(wanted.current_leader_epoch)
        partition.health.check()
        log = partition.log
        if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
            await self._by_timestamp(context, partition, timestamp, reader, answer)
            return
        if timestamp == LATEST:
            _check_end_known(context, partition, reader)
            answer.offset = _readable_end(partition, reader)
        elif timestamp == EARLIEST:
            answer.offset = log.log_start_offset
        elif timestamp == EARLIEST_LOCAL:
            answer.offset = log.local_log_start_offset
        else:
            found = _tiered(partition, timestamp)
            if found is None:
                return
            answer.offset = found
        answer.leader_epoch = _epoch_at(partition, answer.offset)

    async def _by_timestamp(
        self,
        context: Context,
        partition: Partition,
        timestamp: int,
        reader: _Reader,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        """Search the log. Long batches, and all batches after the first, are searched in a worker thread."""
        start = 0 if timestamp == MAX_TIMESTAMP else partition.log.log_start_offset
        found, in_vain = None, False
        while found is None:
            dated = await self._dated_batch(partition, timestamp, start)
            if dated is None:
                break
            walk = dated.latest if timestamp == MAX_TIMESTAMP else dated.first
            if in_vain or is_long(dated.batch):
                found = await self._workers.in_thread(walk)
            else:
                found = walk()
            start, in_vain = dated.next_offset, True
        # A replica that lost leadership meanwhile may have truncated its log: its answer would be wrong.
        partition.check_leader_epoch(_ANY_EPOCH)
        if found is None or found.offset >= _readable_end(partition, reader):
            # No readable record matches. A new leader may not know the high watermark yet.
            _check_end_known(context, partition, reader)
            return
        answer.timestamp = found.timestamp
        answer.offset = found.offset
        answer.leader_epoch = found.leader_epoch

    async def _dated_batch(self, partition: Partition, timestamp: int, start: int) -> DatedBatch | None:
        """The next batch that may contain the record."""
        log = partition.log

        def find() -> DatedBatch | None:
            if timestamp == MAX_TIMESTAMP:
                return log.latest_batch(start, cached_only=True)
            return log.batch_at_or_after(timestamp, start, cached_only=True)

        return await retry_when_cached(partition, self._workers, find)

    def offset_for_leader_epoch(
        self, context: Context, request: OffsetForLeaderEpochRequest
    ) -> OffsetForLeaderEpochResponse:
        response = OffsetForLeaderEpochResponse()
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                answer = EpochEndOffset(partition=wanted.partition)
                answers.append(answer)
                try:
                    partition = self._find(topic.topic, wanted.partition)
                    partition.check_leader_epoch(wanted.current_leader_epoch)
                    partition.health.check()
                except ApiError as e:
                    answer.error_code = e.code
                    continue
                answer.leader_epoch, answer.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
            response.topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
        return response

    async def delete_records(self, context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
        """Advance log start offsets; responds once they are on disk and all followers have done the same."""
        response = DeleteRecordsResponse()
        moved: dict[DataDirectory, list[DeleteRecordsPartitionResult]] = {}
        deleting: list[tuple[Leadership, asyncio.Future[bool], DeleteRecordsPartitionResult]] = []
        for topic in request.topics:
            answers = []
            for wanted in topic.partitions:
                answer = DeleteRecordsPartitionResult(
                    partition_index=wanted.partition_index, low_watermark=-1
                )
                answers.append(answer)
                try:
                    partition = self._find(topic.name, wanted.partition_index)
                    answer.low_watermark = _delete_before(partition, wanted.offset)
                except ApiError as e:
                    answer.error_code = e.code
                else:
                    moved.setdefault(partition.directory, []).append(answer)
                    if partition.leadership is not None:
                        deleting.append((partition.leadership, partition.leadership.deleted(), answer))
            response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=answers))
        for directory, answers in moved.items():
            try:
                await self._partitions.checkpoints.write(directory)
            except StorageError as e:
                for answer in answers:
                    answer.error_code, answer.low_watermark = e.code, -1
        if deleting:
            await _wait_for_replicas(deleting, request.timeout_ms / 1000)
        return response

    def _find(self, topic: str, index: int) -> Partition:
        partition = self._partitions.find(topic, index)
        if isinstance(partition, ErrorCode):
            raise ApiError(partition)
        return partition


def _readable_end(partition: Partition, reader: _Reader) -> int:
    """The offset up to which `reader` may read, as far as this leader knows."""
    if reader is _Reader.FOLLOWER:
        return partition.log.end_offset
    return partition.readable_end(reader is _Reader.COMMITTED)


def _check_end_known(context: Context, partition: Partition, reader: _Reader) -> None:
    """Reject the request while a new leader does not know the latest offset.

    It knows the offset once all records that were committed before its election are committed again.
    """
    if reader is _Reader.FOLLOWER or knows_latest_offset(partition):
        return
    known = context.version >= _NOT_AVAILABLE_FROM
    raise ApiError(ErrorCode.OFFSET_NOT_AVAILABLE if known else ErrorCode.LEADER_NOT_AVAILABLE)


def _tiered(partition: Partition, timestamp: int) -> int | None:
    """The last offset in the archive, or the first one that is to be copied; None if there is none.

    As in Kafka, None also if this leader has not read the archive yet.
    """
    known = partition.archived
    if known is None or not partition.log.config.remote_storage_enable:
        return None
    if timestamp == LATEST_TIERED:
        return None if known.end_offset is None else known.end_offset - 1
    start = partition.log.log_start_offset
    return start if known.end_offset is None else max(start, known.end_offset)


def _epoch_at(partition: Partition, offset: int) -> int:
    """The leader epoch of `offset`; at the log end offset the current epoch, even if it has no records."""
    if offset >= partition.log.end_offset:
        return partition.leader_epoch
    epoch = partition.log.leader_epochs.epoch_of(offset)
    return partition.leader_epoch if epoch is None else epoch


async def _wait_for_replicas(
    deleting: Sequence[tuple[Leadership, asyncio.Future[bool], DeleteRecordsPartitionResult]],
    timeout_s: float,
) -> None:
    await asyncio.wait([done for _, done, _ in deleting], timeout=timeout_s)
    for leadership, done, answer in deleting:
        if not done.done():
            done.cancel()
            answer.error_code, answer.low_watermark = ErrorCode.REQUEST_TIMED_OUT, -1
        elif not done.result():
            answer.error_code, answer.low_watermark = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
        elif not answer.error_code:
            answer.low_watermark = leadership.low_watermark


def _delete_before(partition: Partition, offset: int) -> int:
    if partition.topic in COORDINATOR_TOPICS:
        raise InvalidTopic(f"Records of {partition.topic} are the state of a coordinator")
    partition.health.check()
    if not partition.leading:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    log = partition.log
    if log.config.compact and not log.config.delete:
        raise PolicyViolation("Records of a topic that is compacted and not deleted cannot be deleted")
    if offset == _HIGH_WATERMARK:
        offset = log.high_watermark
    if not 0 <= offset <= log.high_watermark:
        raise OffsetOutOfRange(f"The offset {offset} is beyond the high watermark {log.high_watermark}")
    return log.delete_records(offset)
