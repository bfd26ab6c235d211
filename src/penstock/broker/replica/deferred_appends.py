"""Appends that need work first: recompression to the topic's codec, or a long check of the records.

The work runs in a worker thread, on a copy of the batch that counts as memory of requests in flight. Batches
of one partition keep their order: while one of them is `pending`, later batches are deferred as well, and
wait for the same lock even if they need no work themselves.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.partition import Partition, PendingAppends
from penstock.model.errors import (
    ApiError,
    CorruptMessage,
    ErrorCode,
    InvalidRecord,
    MessageTooLarge,
    RecordListTooLarge,
)
from penstock.net.buffers import BufferPool
from penstock.ports import Workers
from penstock.records.batch import codec_of, crc_matches, read_header
from penstock.records.codecs import Codec
from penstock.records.record import recompress
from penstock.storage.guards import VerificationGuard
from penstock.storage.log import Appended, LongWalk
from penstock.storage.record_checks import check_codec, too_large
from penstock.storage.rules import Rules
from penstock.storage.validation import one_batch

__all__ = ["Result", "append_at_once", "append_later", "append_verified"]

log = get_logger("deferred_appends")


class Result(Protocol):
    """Takes the outcome of an append."""

    def __call__(self, partition: Partition, result: Appended | ApiError) -> None: ...


def append_at_once(partition: Partition, batch: memoryview) -> Appended | None:
    """Append a client's batch; returns None if it needs work first and has to be appended later."""
    codec = partition.codec
    if partition.pending is not None or (codec is not None and codec_of(batch) != codec):
        _check_size(partition, batch)
        return None
    try:
        return partition.append(batch)
    except LongWalk:
        return None


def append_verified(partition: Partition, batch: memoryview, guard: VerificationGuard) -> Appended | None:
    """As `append_at_once`, for the first batch of a transaction, which was verified with `guard`."""
    codec = partition.codec
    if partition.pending is not None or (codec is not None and codec_of(batch) != codec):
        _check_size(partition, batch)
        return None
    try:
        return partition.append(batch, guard=guard)
    except LongWalk:
        return None


def _check_size(partition: Partition, batch: memoryview) -> None:
    """The limit holds for the batch as sent, before it is copied. The append checks the batch as stored."""
    size_max = partition.log.config.max_message_bytes
    if len(batch) > size_max:
        raise MessageTooLarge(f"a batch of {len(batch)} bytes; max.message.bytes is {size_max}")


def append_later(
    workers: Workers,
    memory: BufferPool,
    partition: Partition,
    batch: memoryview,
    result: Result,
    guard: VerificationGuard | None = None,
) -> None:
    """Append a copy of `batch` in the topic's codec, and call `result` when that is done."""
    size = len(batch)
    memory.charge(size)
    pending = partition.pending = partition.pending or PendingAppends()
    append = _append(workers, partition, bytearray(batch), result, pending.order, guard)
    task = asyncio.get_running_loop().create_task(append)

    def done(task: asyncio.Task[None]) -> None:
        pending.tasks.discard(task)
        if not pending.tasks:
            partition.pending = None
        memory.release(size)

    pending.tasks.add(task)
    task.add_done_callback(done)


async def _append(
    workers: Workers,
    partition: Partition,
    batch: bytearray,
    result: Result,
    order: asyncio.Lock,
    guard: VerificationGuard | None,
) -> None:
    async with order:
        try:
            codec = partition.codec
            checked_by = None
            if codec is not None and codec_of(batch) != codec:
                rules = partition.log.rules
                batch = await workers.in_thread(
                    _recompress, batch, codec, partition.compression_level, rules.decompressed_bytes_max
                )
                # Recompression checks the structure of every record, but not keys and timestamps.
                checked_by = None if rules.walk else rules
            appended: Appended | ApiError = await _append_checked(
                workers, partition, memoryview(batch), checked_by, guard
            )
        except ApiError as e:
            appended = e
        except Exception as e:
            log.error("append_failed", partition=partition.name, error=repr(e), exc_info=e)
            appended = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The batch could not be appended")
    result(partition, appended)


async def _append_checked(
    workers: Workers,
    partition: Partition,
    batch: memoryview,
    checked_by: Rules | None,
    guard: VerificationGuard | None,
) -> Appended:
    while True:
        try:
            return partition.append(batch, checked_by=checked_by, guard=guard)
        except LongWalk as walk:
            # Decompression releases the GIL; pure Python code takes turns with the event loop.
            await workers.in_thread(walk.check)
            checked_by = walk.rules


def _recompress(batch: bytearray, codec: Codec, level: int | None, limit: int) -> bytearray:
    """Recompress a batch. Its checksum is checked first: a damaged batch must not get a new one."""
    one = one_batch(memoryview(batch))
    if not crc_matches(one, read_header(one)):
        raise CorruptMessage("The checksum of the batch does not match its content")
    check_codec(one, codec_of(one))
    try:
        return bytearray(recompress(one, codec, level, limit))
    except RecordListTooLarge as e:
        raise too_large(limit) from e
    except CorruptMessage as e:
        # The batch was not damaged on the way: a retry of the client would send the same bytes.
        raise InvalidRecord(str(e)) from e
