"""The one place that changes the cluster's metadata: decide, log, apply.

A change is decided on the image, its records are appended to the metadata log and synced, and only then
applied; whoever asked is answered after that. One change at a time, so every decision sees all before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.metadata.image import ClusterImage
from penstock.ports import Clock, Workers
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.storage.log import Log
from penstock.storage.producers import AppendOrigin
from penstock.wire.metadata_records import decode_metadata_record, encode_metadata_record
from penstock.wire.schema import Struct

__all__ = ["Controller"]

T = TypeVar("T")
_READ_BYTES = 1 << 20


class Controller:
    """Owns the metadata log and the image that it adds up to."""

    def __init__(self, image: ClusterImage, log: Log, clock: Clock, workers: Workers) -> None:
        self.image = image
        self._log = log
        self._clock = clock
        self._workers = workers
        self._turn = asyncio.Lock()
        #: told of every batch of records after it was applied
        self.on_applied: Callable[[Sequence[Struct]], Awaitable[None]] = _nothing

    def replay(self) -> None:
        """Bring the image up to the end of the log."""
        offset = self._log.log_start_offset
        while offset < self._log.end_offset:
            found = self._log.read(offset, _READ_BYTES, upper=self._log.end_offset)
            assert found is not None
            data = found.read()
            for position, header in iter_batches(data):
                for record in iter_records(memoryview(data)[position : position + header.size]):
                    assert record.value is not None
                    self.image.apply(decode_metadata_record(record.value), record.offset)
                offset = header.next_offset

    async def change(self, decide: Callable[[], tuple[Sequence[Struct], T]]) -> T:
        """Decide on the image as it then is; return the decision's result once its records are applied."""
        async with self._turn:
            records, result = decide()
            if records:
                await self._commit(records)
            return result

    async def between_changes(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do what must not see the image change under its feet."""
        async with self._turn:
            await work()

    async def _commit(self, records: Sequence[Struct]) -> None:
        now = self._clock.now_ms()
        base = self._log.end_offset
        batch = build_batch(
            [Record(base + i, now, None, encode_metadata_record(r), ()) for i, r in enumerate(records)],
            base_offset=base,
        )
        # A log that could not be synced is offline from then on, so nothing builds on what may be lost.
        self._log.append(memoryview(bytearray(batch)), 0, origin=AppendOrigin.RAFT)
        plan = self._log.flush_plan()
        await self._workers.in_thread(plan.sync)
        self._log.flushed(plan)
        self._log.advance_high_watermark(self._log.end_offset)
        for i, record in enumerate(records):
            self.image.apply(record, base + i)
        await self.on_applied(records)


async def _nothing(records: Sequence[Struct]) -> None:
    """Nobody to tell."""
