"""Recompressing what a producer sent when its topic asks for another codec.

The work releases the interpreter, so it runs in a worker thread, on a copy of the batch. Batches of one
partition keep their order: while one of them is `pending`, those behind it come here, too, and queue for the
same lock even if they need no work themselves.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from penstock.broker.logs import get_logger
from penstock.broker.partition import Partition
from penstock.model.errors import ApiError, CorruptMessage, ErrorCode, MessageTooLarge
from penstock.ports import Workers
from penstock.records.batch import HEADER_SIZE, MAGIC, codec_of, crc_matches, read_header
from penstock.records.codecs import Codec
from penstock.records.record import recompress
from penstock.storage.log import Appended

__all__ = ["append_recompressed"]

log = get_logger("recompression")


class Result(Protocol):
    def __call__(self, partition: Partition, result: Appended | ApiError) -> None: ...


def append_recompressed(workers: Workers, partition: Partition, batch: memoryview, result: Result) -> None:
    """Append a copy of `batch` in the topic's codec, and call `result` when that is done."""
    copy = bytearray(batch)
    task = asyncio.get_running_loop().create_task(_append(workers, partition, copy, result))
    partition.pending.add(task)
    task.add_done_callback(partition.pending.discard)


async def _append(workers: Workers, partition: Partition, batch: bytearray, result: Result) -> None:
    async with partition.order:
        try:
            _check_size(batch, partition.log.config.max_message_bytes)
            codec = partition.codec
            if codec is not None and codec_of(batch) != codec and _is_one_batch(batch):
                batch = await workers.in_thread(_recompress, batch, codec, partition.compression_level)
            appended: Appended | ApiError = partition.append(memoryview(batch))
        except ApiError as e:
            appended = e
        except Exception as e:
            log.error("recompression_failed", partition=partition.name, error=repr(e), exc_info=e)
            appended = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "The batch could not be recompressed")
    result(partition, appended)


def _check_size(batch: bytearray, size_max: int) -> None:
    """The limit holds for what is sent, too; the append looks at what is stored."""
    if len(batch) > size_max:
        raise MessageTooLarge(f"a batch of {len(batch)} bytes; max.message.bytes is {size_max}")


def _is_one_batch(batch: bytearray) -> bool:
    """Whether there is something to recompress; if not, the append refuses it and says why."""
    if len(batch) < HEADER_SIZE:
        return False
    header = read_header(batch)
    return header.magic == MAGIC and header.size == len(batch)


def _recompress(batch: bytearray, codec: Codec, level: int | None) -> bytearray:
    """The batch in another codec. Its checksum is checked first: corruption must not get a new one."""
    if not crc_matches(batch, read_header(batch)):
        raise CorruptMessage("The checksum of the batch does not match its content")
    return bytearray(recompress(batch, codec, level))
