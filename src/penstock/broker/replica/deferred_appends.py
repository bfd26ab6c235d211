"""Appends that need work first: recompression to the topic's codec, or a long check of the records.

The work runs in a worker thread, on a copy of the batch that counts as memory of requests in flight. Batches
of one partition keep their order: while one of them is `pending`, later batches are deferred as well, and
wait for the same lock even if they need no work themselves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Final, Protocol, TypeVar

from penstock.broker.base.logs import get_logger
from penstock.broker.replica.partition import Partition, PendingAppends
from penstock.broker.replica.recompression import Recompression
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
from penstock.records.record import recompress
from penstock.storage.guards import VerificationGuard
from penstock.storage.log import Appended, LongWalk
from penstock.storage.record_checks import DecompressedTooLarge, check_codec, too_large
from penstock.storage.rules import Rules
from penstock.storage.validation import one_batch

__all__ = ["Producer", "Result", "append_at_once", "append_later"]

T = TypeVar("T")
log = get_logger("deferred_appends")
#: what a batch may decompress to in any number of worker threads
_SMALL_BYTES: Final = 16 << 20


class Producer(Protocol):
    """A connection that batches came from."""

    @property
    def owner(self) -> Hashable: ...
    @property
    def address(self) -> str: ...


class Result(Protocol):
    """Takes the outcome of an append."""

    def __call__(self, partition: Partition, result: Appended | ApiError) -> None: ...


def append_at_once(
    partition: Partition, batch: memoryview, guard: VerificationGuard | None = None
) -> Appended | None:
    """Append a client's batch; returns None if it needs work first and has to be appended later.

    `guard` is that of the first batch of a transaction, which was verified with it.
    """
    wanted = partition.recompression
    if partition.pending is not None or (wanted is not None and codec_of(batch) != wanted.codec):
        _check_size(partition, batch)
        return None
    try:
        # Without a keyword the interpreter makes the call faster, and nearly no batch has a guard.
        return partition.append(batch) if guard is None else partition.append(batch, guard=guard)
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
    client: Producer,
    guard: VerificationGuard | None = None,
) -> None:
    """Append a copy of `batch` in the topic's codec, and call `result` when that is done.

    The copy counts for the address of `client`, and clients take turns for the workers.
    """
    size, address = len(batch), client.address
    memory.charge(size, address)
    pending = partition.pending = partition.pending or PendingAppends()
    checks = _Checks(workers, memory, client.owner)
    append = _append(checks, partition, bytearray(batch), result, pending.order, guard)
    task = asyncio.get_running_loop().create_task(append)

    def done(task: asyncio.Task[None]) -> None:
        pending.tasks.discard(task)
        if not pending.tasks:
            partition.pending = None
        memory.release(size, address)

    pending.tasks.add(task)
    task.add_done_callback(done)


class _Checks:
    """Runs work that decompresses batches in worker threads.

    Most batches decompress to little. One that needs more memory than that is started again, and few such
    batches are decompressed at once: a producer may send a gigabyte in a few hundred kilobytes. Producers
    take turns, and other work of the threads (a sync, for example) never waits for all of their batches.
    """

    __slots__ = ("_memory", "_owner", "_workers")

    def __init__(self, workers: Workers, memory: BufferPool, owner: Hashable) -> None:
        self._workers = workers
        self._memory = memory
        self._owner = owner

    async def run(self, work: Callable[[int], T], memory_max: int) -> T:
        """The result of `work`, which gets the most bytes that it may decompress to."""
        small = min(memory_max, _SMALL_BYTES)
        try:
            async with self._memory.checked_batches.slot(self._owner):
                return await self._workers.in_thread(work, small)
        except DecompressedTooLarge:
            if small == memory_max:
                raise
        async with self._memory.large_batches.slot(self._owner):
            return await self._workers.in_thread(work, memory_max)


async def _append(
    checks: _Checks,
    partition: Partition,
    batch: bytearray,
    result: Result,
    order: asyncio.Lock,
    guard: VerificationGuard | None,
) -> None:
    async with order:
        try:
            wanted = partition.recompression
            checked_by = None
            if wanted is not None and codec_of(batch) != wanted.codec:
                rules = partition.log.rules
                batch = await checks.run(
                    partial(_recompress, batch, wanted),
                    rules.decompressed_bytes_max,
                )
                # Recompression checks the structure of every record, but not keys and timestamps.
                checked_by = None if rules.walk else rules
            appended: Appended | ApiError = await _append_checked(
                checks, partition, memoryview(batch), checked_by, guard
            )
        except ApiError as e:
            appended = e
            # The frames of its traceback refer to the batch and to this error, and this frame to the error.
            e.__traceback__ = e.__cause__ = e.__context__ = None
        except Exception as e:
            log.error("append_failed", partition=partition.name, error=repr(e), exc_info=e)
            appended = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The batch could not be appended")
    result(partition, appended)


async def _append_checked(
    checks: _Checks,
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
            await checks.run(walk.check, walk.rules.decompressed_bytes_max)
            checked_by = walk.rules


def _recompress(batch: bytearray, wanted: Recompression, limit: int) -> bytearray:
    """Recompress a batch. Its checksum is checked first: a damaged batch must not get a new one."""
    one = one_batch(memoryview(batch))
    if not crc_matches(one, read_header(one)):
        raise CorruptMessage("The checksum of the batch does not match its content")
    check_codec(one, codec_of(one))
    try:
        return bytearray(recompress(one, wanted.codec, wanted.level, limit))
    except RecordListTooLarge as e:
        raise too_large(limit) from e
    except CorruptMessage as e:
        # The batch was not damaged on the way: a retry of the client would send the same bytes.
        raise InvalidRecord(str(e)) from e
