"""A coordinator's records in its partition's log: reading all of them, and appending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.ports import Workers
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.storage.producers import AppendOrigin

__all__ = ["append_records", "load_records"]

log = get_logger("coordinator")
_READ_BYTES: Final = 1 << 20
#: more than a record costs beside its key and value: lengths, offset and timestamp
_RECORD_OVERHEAD: Final = 64


def append_records(partition: Partition, records: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> None:
    """Append `records` in as few batches as max.message.bytes allows; all of them or none."""
    batches = bytearray()
    limit = partition.log.config.max_message_bytes
    start = size = 0
    for index, (key, value) in enumerate(records):
        more = len(key) + len(value or b"") + _RECORD_OVERHEAD
        if index > start and HEADER_SIZE + size + more > limit:
            batches += _batch(records[start:index], now_ms)
            start, size = index, 0
        size += more
    batches += _batch(records[start:], now_ms)
    if partition.leadership is not None:
        # Nobody is answered before enough replicas have it: what cannot be committed is not decided.
        partition.leadership.check_enough_replicas()
    partition.append(memoryview(batches), AppendOrigin.COORDINATOR)


def _batch(records: Sequence[tuple[bytes, bytes | None]], now_ms: int) -> bytes:
    return build_batch([Record(i, now_ms, key, value) for i, (key, value) in enumerate(records)])


async def load_records(
    partition: Partition, replay: Callable[[bytes, bytes | None], None], workers: Workers
) -> None:
    """Replay everything that the log holds now, a piece at a time.

    `CorruptLog` where it is damaged and other replicas are not: that can be mended.
    """
    opened = partition.log
    offset, end = opened.log_start_offset, opened.end_offset
    while (offset := _sound_from(partition, offset)) < end:
        found = opened.read(offset, _READ_BYTES, upper=end)
        assert found is not None
        data = await workers.in_thread(found.read)
        for position, header in iter_batches(data):
            _replay_batch(memoryview(data)[position : position + header.size], header, replay)
            offset = header.next_offset
        await asyncio.sleep(0)


def _sound_from(partition: Partition, offset: int) -> int:
    """`offset`, or the first sound one behind it where it is damaged and no other replica has it."""
    if partition.leadership is None:
        for damage in partition.log.recovery.corruption:
            if damage.first_offset <= offset < damage.next_offset:
                log.error(
                    "coordinator_records_lost",
                    partition=partition.name,
                    first_offset=offset,
                    next_offset=damage.next_offset,
                    path=damage.path,
                )
                offset = damage.next_offset
    return offset


def _replay_batch(
    batch: memoryview, header: BatchHeader, replay: Callable[[bytes, bytes | None], None]
) -> None:
    if header.is_control:
        return
    for record in iter_records(batch):
        if record.key is not None:
            replay(record.key, record.value)
