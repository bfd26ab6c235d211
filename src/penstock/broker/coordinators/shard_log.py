"""The log of a shard: replay of the whole log, repair of a damaged one, and appends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Final, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.base.metrics import Metrics
from penstock.broker.healing.repair import Outcome
from penstock.broker.replica.partition import Partition
from penstock.coordination.outbox import (
    EncodedRecord,
    EndMarker,
    LogRecord,
    TransactionalRecords,
    item_of,
)
from penstock.coordination.shard import CoordinatorShard
from penstock.model.errors import ApiError, CorruptMessage, ErrorCode, MessageTooLarge
from penstock.ports import Workers
from penstock.records.batch import HEADER_SIZE, BatchHeader, crc_matches
from penstock.records.control import EndTransaction, build_end_transaction, parse_end_transaction
from penstock.records.record import Record, build_batch, build_keyed_batch, iter_batches, iter_records
from penstock.storage.guards import VerificationGuard
from penstock.storage.producers import AppendOrigin
from penstock.storage.scan import CorruptLog

__all__ = ["Loader", "append_records", "largest_record", "request_error"]

log = get_logger("coordinator")
_READ_BYTES: Final = 1 << 20
#: records that are replayed between two turns of other requests; each takes some 10 µs
_REPLAYED_AT_ONCE: Final = 300
#: so many bytes of a record, such as the partitions of a member, count as a record
_LARGE_BYTES: Final = 400
#: more than a record costs beside its key and value: lengths, offset and timestamp
_RECORD_OVERHEAD: Final = 64
_OF_PRODUCER: Final = (TransactionalRecords, EndMarker)
#: the error of a request by the error of its append; any other error is passed on as it is
_APPEND_ERRORS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def request_error(error: Exception) -> ApiError:
    """The error of a request whose records were not appended, by the error of the append."""
    if isinstance(error, ApiError):
        return ApiError(_APPEND_ERRORS.get(error.code, error.code), str(error))
    return ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))


def largest_record(partition: Partition) -> int:
    """The size of the largest key and value that the log takes in a batch of one record."""
    return partition.log.appender.rules.message_bytes_max - HEADER_SIZE - _RECORD_OVERHEAD


def append_records(partition: Partition, records: Sequence[LogRecord], now_ms: int) -> None:
    """Append records, in as few batches as max.message.bytes allows, and markers.

    All consecutive records without a producer are appended, or none. If an append fails, those before it are
    in the log: the caller has to load the log again.
    """
    if partition.leadership is not None:
        # A record that cannot be committed must not be appended: its request would wait for a timeout.
        partition.leadership.check_enough_replicas()
    plain: list[EncodedRecord] = []
    for item in list(map(item_of, records)):
        if not isinstance(item, _OF_PRODUCER):
            plain.append(item)
            continue
        _append_plain(partition, plain, now_ms)
        plain = []
        if isinstance(item, EndMarker):
            _append_marker(partition, item, now_ms)
        else:
            _append_transactional(partition, item, now_ms)
    _append_plain(partition, plain, now_ms)


def _append_transactional(partition: Partition, item: TransactionalRecords, now_ms: int) -> None:
    batch = build_batch(
        [Record(i, now_ms, key, value) for i, (key, value) in enumerate(item.records)],
        producer_id=item.producer_id,
        producer_epoch=item.producer_epoch,
        transactional=True,
    )
    assert item.guard is None or isinstance(item.guard, VerificationGuard)
    partition.append(memoryview(bytearray(batch)), AppendOrigin.COORDINATOR, guard=item.guard)


def _append_marker(partition: Partition, item: EndMarker, now_ms: int) -> None:
    batch = build_end_transaction(
        EndTransaction(item.committed, item.coordinator_epoch),
        producer_id=item.producer_id,
        producer_epoch=item.producer_epoch,
        timestamp=now_ms,
    )
    partition.append(memoryview(bytearray(batch)), AppendOrigin.COORDINATOR)


def _append_plain(partition: Partition, records: Sequence[EncodedRecord], now_ms: int) -> None:
    if not records:
        return
    rules = partition.log.appender.rules
    largest = max(len(value or b"") for _, value in records)
    if largest > rules.message_bytes_max:
        # Before it is copied, several times: a request may have brought 100 MB.
        raise MessageTooLarge(f"a record of {largest} bytes, limit {rules.message_bytes_max}")
    batches = build_keyed_batch(records, now_ms)
    if len(batches) > rules.message_bytes_max:
        batches = _split(records, now_ms, rules.message_bytes_max)
    # Neither the checksum nor the records of a batch that was just built have to be checked.
    partition.append(memoryview(batches), AppendOrigin.COORDINATOR, rules)


def _split(records: Sequence[EncodedRecord], now_ms: int, size_max: int) -> bytearray:
    """Batches of up to `size_max` bytes, or of one record."""
    batches = bytearray()
    start, size = 0, HEADER_SIZE
    for index, (key, value) in enumerate(records):
        more = len(key) + len(value or b"") + _RECORD_OVERHEAD
        if index > start and size + more > size_max:
            batches += build_keyed_batch(records[start:index], now_ms)
            start, size = index, HEADER_SIZE
        size += more
    return batches + build_keyed_batch(records[start:], now_ms)


S = TypeVar("S", bound=CoordinatorShard)


class Loader:
    """Replays a partition's log into a new shard.

    A damaged log is repaired first, from another replica. While a replica that may have the damaged range
    is unavailable, the shard is not loaded: an outage must not lose committed offsets. If no replica has
    the range (the partition has one replica, or all are damaged there), the shard is loaded without it.
    """

    __slots__ = ("_metrics", "_read_bytes", "_repair", "_workers")

    def __init__(
        self,
        workers: Workers,
        metrics: Metrics,
        repair: Callable[[Partition], Awaitable[Outcome | None]],
        read_bytes: int = _READ_BYTES,
    ) -> None:
        """`read_bytes` is the size of a read; a batch that is larger is read whole."""
        self._read_bytes = read_bytes
        self._workers = workers
        self._metrics = metrics
        self._repair = repair

    async def load(self, partition: Partition, make_shard: Callable[[], S]) -> S | None:
        """A new shard with all records of the log; None while a damaged log may still be repaired."""
        shard = await self._replayed(partition, make_shard)
        if shard is None and await self._repair(partition) in (Outcome.REPAIRED, Outcome.LOST):
            shard = await self._replayed(partition, make_shard, skip_damage=True)
        return shard

    async def _replayed(
        self, partition: Partition, make_shard: Callable[[], S], *, skip_damage: bool = False
    ) -> S | None:
        """Returns None if the log is damaged. With `skip_damage`, known damaged ranges are left out."""
        shard = make_shard()
        try:
            await self._replay(partition, shard, skip_damage)
        except (CorruptLog, CorruptMessage) as e:
            log.error("coordinator_log_damaged", partition=partition.name, error=str(e))
            return None
        return shard

    async def _replay(self, partition: Partition, shard: CoordinatorShard, skip_damage: bool) -> None:
        """Replay the log piece by piece, so that other requests are served in between."""
        opened = partition.log
        offset, end = opened.log_start_offset, opened.end_offset
        while (offset := self._sound_from(partition, offset) if skip_damage else offset) < end:
            found = opened.read(offset, self._read_bytes, upper=end)
            if found is None:
                # Compaction has removed all records from `offset` on.
                return
            data = memoryview(await self._workers.in_thread(found.read))
            for reached in _replay_batches(data, offset, end, shard):
                offset = reached
                await asyncio.sleep(0)

    def _sound_from(self, partition: Partition, offset: int) -> int:
        """`offset`, or the end of the damaged range that contains it. Reports each skipped range."""
        for damage in partition.log.recovery.corruption:
            if damage.first_offset <= offset < damage.next_offset:
                self._metrics.coordinator_ranges_lost += 1
                log.error(
                    "coordinator_records_lost",
                    partition=partition.name,
                    first_offset=offset,
                    next_offset=damage.next_offset,
                    path=damage.path,
                )
                offset = damage.next_offset
        return offset


def _replay_batches(data: memoryview, offset: int, end: int, shard: CoordinatorShard) -> Iterator[int]:
    """Replay the whole batches in `data`, from `offset` to before `end`. Yields the next offset.

    Yields after some records, so that other requests are served in between, and at last at the end.
    """
    start, replayed = offset, 0
    for position, header in iter_batches(data):
        batch = data[position : position + header.size]
        # No checksum covers a batch's base offset. So its offsets are checked against the log's.
        if not offset < header.next_offset <= end or not crc_matches(batch, header):
            raise CorruptLog(f"no sound batch at offset {offset}")
        for _ in _replay_batch(batch, header, shard):
            yield offset
        offset = header.next_offset
        replayed += 1 + min(header.record_count, _REPLAYED_AT_ONCE) + header.size // _LARGE_BYTES
        if replayed > _REPLAYED_AT_ONCE:
            replayed = 0
            yield offset
    if offset == start:
        raise CorruptLog(f"no whole batch at offset {offset}")
    yield offset


def _replay_batch(batch: memoryview, header: BatchHeader, shard: CoordinatorShard) -> Iterator[None]:
    """Replay a batch. Yields after some records."""
    producer_id, producer_epoch = header.producer_id, header.producer_epoch
    if header.is_control:
        marker = parse_end_transaction(batch)
        if marker is not None:
            shard.replay_end_transaction_marker(producer_id, producer_epoch, marker.committed)
        return
    replay = shard.replay
    replayed = 0
    for record in iter_records(batch):
        if record.key is not None:
            replay(record.offset, producer_id, producer_epoch, record.key, record.value)
            replayed += 1 + len(record.value or b"") // _LARGE_BYTES
        if replayed >= _REPLAYED_AT_ONCE:
            replayed = 0
            yield
