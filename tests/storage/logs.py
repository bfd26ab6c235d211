"""What the tests of storage share: a clock that stands still, batches, and what a log holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from penstock.ports import Files
from penstock.records.control import EndTransaction, build_end_transaction
from penstock.records.record import Record, build_batch, iter_batches, iter_records
from penstock.storage.config import LogConfig
from penstock.storage.guards import VerificationGuard
from penstock.storage.log import Appended, AppendOrigin, Log, LongWalk
from penstock.storage.lookup import TimestampOffset
from penstock.storage.memory import MemoryFiles
from penstock.storage.recovery_report import Corruption
from penstock.storage.scrub import note_damage
from penstock.storage.segment_files import LOG

PATH = "/data/topics/t/partition-0"
NOW_MS = 1_700_000_000_000


class StillClock:
    """Time moves when a test says so."""

    def __init__(self, ms: int = NOW_MS) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000


class Tokens:
    """Randomness without surprises."""

    def token(self, size: int) -> bytes:
        return bytes(size)

    def uniform(self, low: float, high: float) -> float:
        return low


CLOCK = StillClock()


def open_log(
    files: Files | None = None, *, clean: bool = False, clock: StillClock = CLOCK, **settings: Any
) -> Log:
    """A log in memory, or in `files`; settings of `Log.open` and of `LogConfig` as they come."""
    names = ("recovery_point", "log_start_offset", "high_watermark")
    openings = {name: settings.pop(name) for name in names if name in settings}
    files = MemoryFiles(clock) if files is None else files
    return Log.open(files, PATH, replace(LogConfig(), **settings), clock, clean=clean, **openings)


def batch(count: int = 1, *, value: bytes = b"v", timestamp: int = NOW_MS, **fields: Any) -> memoryview:
    """A batch as a client sends it, of records whose timestamps rise by one."""
    records = [Record(i, timestamp + i, b"k%d" % i, value) for i in range(count)]
    return memoryview(bytearray(build_batch(records, **fields)))


def idempotent(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, **fields: Any
) -> memoryview:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **fields)


def marker(
    committed: bool, *, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 0
) -> memoryview:
    """The end of a transaction as a coordinator writes it."""
    end = EndTransaction(committed, coordinator_epoch)
    return memoryview(
        bytearray(build_end_transaction(end, producer_id=producer_id, producer_epoch=epoch, timestamp=NOW_MS))
    )


def append_marker(log: Log, batch: memoryview, leader_epoch: int = 0) -> Appended:
    return log.append(batch, leader_epoch, AppendOrigin.COORDINATOR)


def stored(log: Log) -> bytes:
    """All bytes that a reader of everything gets."""
    data = b""
    offset = log.local_log_start_offset
    while (found := log.read(offset, 1 << 20, upper=log.end_offset)) is not None:
        data += found.read()
        *_, (_, last) = iter_batches(data)
        offset = last.next_offset
    return data


def records(log: Log) -> list[Record]:
    data = stored(log)
    return [
        record
        for position, header in iter_batches(data)
        for record in iter_records(memoryview(data)[position : position + header.size])
    ]


def note_rot(log: Log, nth: int) -> None:
    """Do what a scrubber does that finds a batch of the last segment rotten."""
    segment = log.segments.active
    position, header = list(iter_batches(segment.open_file().pread(segment.size, 0)))[nth]
    damage = Corruption(segment.path(LOG), position, header.size, header.base_offset, header.next_offset)
    note_damage(log, segment, damage)


def flush(log: Log) -> None:
    plan = log.flush_plan()
    plan.sync()
    log.flushed(plan)


def record_at_or_after(log: Log, timestamp: int, *, cached_only: bool = False) -> TimestampOffset | None:
    """The first record whose timestamp is `timestamp` or later."""
    start = log.log_start_offset
    while (dated := log.batch_at_or_after(timestamp, start, cached_only=cached_only)) is not None:
        found = dated.first()
        if found is not None:
            return found
        start = dated.next_offset
    return None


def latest_record(log: Log) -> TimestampOffset | None:
    """The first record with the largest timestamp."""
    start = 0
    while (dated := log.latest_batch(start)) is not None:
        found = dated.latest()
        if found is not None:
            return found
        start = dated.next_offset
    return None


def append_checked(
    log: Log,
    batch: memoryview,
    origin: AppendOrigin = AppendOrigin.CLIENT,
    guard: VerificationGuard | None = None,
) -> Appended:
    """Append, however long the records take to check."""
    try:
        return log.append(batch, 0, origin, guard=guard)
    except LongWalk as walk:
        walk.check()
        return log.append(batch, 0, origin, walk.rules, guard)
