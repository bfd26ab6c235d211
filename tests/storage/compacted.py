"""A compacted log over memory, for tests: appends, compactions and reads in one line each."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

from penstock.ports import Files
from penstock.records.codecs import Codec
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.storage.cleaner import KEY_BYTES, clean, measure, plan
from penstock.storage.compaction import CompactionResult
from penstock.storage.config import LogConfig
from penstock.storage.guards import NO_VERIFICATION
from penstock.storage.log import Log
from penstock.storage.memory import MemoryFiles
from penstock.storage.producers import AppendOrigin
from penstock.storage.seals import NO_OWNER, LogOwner
from tests.storage.logs import append_checked

T = TypeVar("T")
PATH = "/data/topics/t/partition-0"
COMPACT = LogConfig(cleanup_policy=frozenset({"compact"}), delete_retention_ms=1000)


class ManualClock:
    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class InlineWorkers:
    """Does the work at once, but insists that what would go to another process can be pickled."""

    def in_thread(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        async def run() -> T:
            return function(*args)

        return run()

    def in_process(self, function: Callable[..., T], *args: Any) -> Awaitable[T]:
        async def run() -> T:
            there, passed = pickle.loads(pickle.dumps((function, args)))
            result: T = pickle.loads(pickle.dumps(there(*passed)))
            return result

        return run()

    def close(self) -> None:
        """Nothing is under way."""


class CompactedLog:
    """A log, its clock, and up to where it is clean."""

    def __init__(
        self,
        config: LogConfig = COMPACT,
        files: Files | None = None,
        path: str = PATH,
        owner: LogOwner = NO_OWNER,
    ) -> None:
        self.files = files or MemoryFiles()
        self.owner = owner
        self.path = path
        self.clock = ManualClock()
        self.config = config
        self.clean_until: int | None = None
        self.log = self._open(clean=True)

    def _open(self, clean: bool) -> Log:
        log = Log.open(self.files, self.path, self.config, self.clock, clean=clean, owner=self.owner)
        log.advance_high_watermark(log.end_offset)
        return log

    def reopen(self, clean: bool = True) -> None:
        if clean:
            self.log.close()
        self.log = self._open(clean)

    def put(
        self,
        *pairs: tuple[bytes, bytes | None],
        codec: Codec = Codec.NONE,
        producer_id: int = -1,
        sequence: int = -1,
        transactional: bool = False,
    ) -> list[Record]:
        """Append one batch of (key, value); returns the records as they are in the log."""
        base = self.log.end_offset
        now_ms = self.clock.ms
        sent = [Record(i, now_ms + i, key, value) for i, (key, value) in enumerate(pairs)]
        batch = build_batch(
            sent,
            codec=codec,
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else 0,
            base_sequence=sequence,
            transactional=transactional,
        )
        self._append(batch, AppendOrigin.CLIENT)
        return [record._replace(offset=base + record.offset) for record in sent]

    def end(self, producer_id: int, committed: bool) -> int:
        """Append a marker; returns its offset."""
        marker = EndTransaction(committed, 0)
        batch = build_end_transaction(
            marker, producer_id=producer_id, producer_epoch=0, timestamp=self.clock.ms
        )
        self._append(batch, AppendOrigin.COORDINATOR)
        return self.log.end_offset - 1

    def _append(self, batch: bytes, origin: AppendOrigin) -> None:
        append_checked(self.log, memoryview(bytearray(batch)), origin, guard=NO_VERIFICATION)
        self.log.advance_high_watermark(self.log.end_offset)

    def compact(self, keys_max: int = 1_000_000) -> CompactionResult | None:
        """Seal what is there and compact as much of it as can be; None if nothing is dirty."""
        self.log.roll()
        dirt = measure(self.log, self.clean_until, self.clock.ms)
        if not dirt.dirty_bytes:
            return None
        planned = plan(dirt, self.clock.ms, keys_max * KEY_BYTES)
        result = asyncio.run(clean(self.log, planned, self.files, InlineWorkers()))
        assert result is not None
        self.clean_until = result.clean_until
        return result

    def batches(self, offset: int = 0) -> Iterable[bytes]:
        """The batches from the one that holds `offset` on, as a reader gets them."""
        while offset < self.log.end_offset:
            found = self.log.read(offset, 1_000_000, upper=self.log.end_offset)
            if found is None:
                return
            data = found.read()
            for position, header in iter_batches(data):
                yield data[position : position + header.size]
                offset = header.next_offset

    def records(self, offset: int = 0) -> list[Record]:
        """The records from `offset` on, without control records."""
        return [
            record
            for batch in self.batches(offset)
            if not next(iter_batches(batch))[1].is_control
            for record in iter_records(batch)
            if record.offset >= offset
        ]

    def pairs(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(record.key, record.value) for record in self.records()]


def latest(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    """What a table built from `records` holds."""
    table: dict[bytes | None, bytes] = {}
    for record in records:
        if record.value is None:
            table.pop(record.key, None)
        else:
            table[record.key] = record.value
    return table
