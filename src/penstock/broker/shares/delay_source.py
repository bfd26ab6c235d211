"""Reads of a delay partition: its log in order, and single messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from penstock.broker.base.page_cache import retry_when_cached
from penstock.broker.replica.partition import Partition
from penstock.ports import FileRange, Workers
from penstock.shares.delay_batches import Aborted, Delayed, LogPart, parse_log, pick

__all__ = ["DelaySource"]

_READ_BYTES: Final = 1 << 20
#: for single messages; a batch that is larger is read as a whole
_PICK_BYTES: Final = 64 << 10


class DelaySource:
    """The log of one delay partition."""

    def __init__(self, partition: Partition, workers: Workers) -> None:
        self._partition = partition
        self._workers = workers

    async def part(self, offset: int) -> LogPart:
        """Committed batches from `offset` on. Messages above the last stable offset may be aborted later."""
        log = self._partition.log

        def find() -> tuple[FileRange | None, Aborted]:
            upper = log.high_watermark
            return self._find(offset, _READ_BYTES, upper), log.aborted_transactions(
                offset, upper, cached_only=True
            )

        found, aborted = await retry_when_cached(self._partition, self._workers, find)
        return await self._workers.in_thread(parse_log, await self._read(found), aborted, offset)

    async def messages(self, offsets: Sequence[int], bytes_max: int) -> dict[int, Delayed | None]:
        """Messages in the given order, until they have `bytes_max` bytes; None for those that are gone."""
        log = self._partition.log
        found: dict[int, Delayed | None] = {}
        read: dict[int, Delayed] = {}
        wanted = set(offsets)
        size = 0
        for offset in offsets:
            if size >= bytes_max:
                break
            if offset not in read and offset >= log.log_start_offset:
                place = await retry_when_cached(
                    self._partition,
                    self._workers,
                    lambda: self._find(offset, _PICK_BYTES, log.high_watermark),  # noqa: B023
                )
                read |= await self._workers.in_thread(pick, await self._read(place), wanted)
            message = found[offset] = read.get(offset)
            size += 0 if message is None else message.bytes_max
        return found

    def _find(self, offset: int, size: int, upper: int) -> FileRange | None:
        partition = self._partition
        try:
            return partition.log.read(offset, size, upper=upper, at_least_one=True, cached_only=True)
        except OSError as e:
            raise partition.read_failed(e) from e

    async def _read(self, found: FileRange | None) -> bytes:
        """In a thread: a mebibyte of an encrypted file with small batches takes 50 ms."""
        if found is None:
            return b""
        try:
            return bytes(await self._workers.in_thread(found.read))
        except OSError as e:
            raise self._partition.read_failed(e, found) from e
