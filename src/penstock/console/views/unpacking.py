"""Unpacks the record batches of fetch responses within a budget.

A batch of a few kilobytes can hold gigabytes, so all limits count uncompressed bytes and are checked before
and while a batch is unpacked. A batch beyond the limits becomes one `Found` with its sizes: the page still
shows the other messages. Pure: runs in a worker thread.

Invariant: unpacking takes the memory of one batch of `Budget.batch_bytes` beyond what the budget has left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.model.errors import CorruptMessage, RecordListTooLarge
from penstock.ports import Buffer
from penstock.records.batch import HEADER_SIZE, BatchHeader
from penstock.records.codecs import Codec
from penstock.records.committed import Aborted, committed
from penstock.records.frames import check_frame
from penstock.records.record import Record, iter_batches, iter_records

__all__ = ["BATCH_BYTES_MAX", "Budget", "Exhausted", "Found", "Oversized", "unpack"]

BATCH_BYTES_MAX: Final = 16 << 20
BATCH_RECORDS_MAX: Final = 200_000
#: what a batch beyond the limits is charged: its memory is free again, but it took time
_OVERSIZED_CHARGE: Final = 1 << 20
#: a record without content takes memory, too
_OVERHEAD: Final = 64
#: records between two looks at the clock
_LATE_EVERY: Final = 1024


class Oversized(NamedTuple):
    """A batch that is not unpacked. `size` are its uncompressed bytes, at least so many if not `is_exact`."""

    base_offset: int
    last_offset: int
    timestamp: int
    records: int
    stored: int
    size: int
    is_exact: bool


class Found(NamedTuple):
    """A message. With `oversized`, the record stands for a whole batch and has no content."""

    partition: int
    record: Record
    oversized: Oversized | None = None


class Exhausted(Exception):
    """The budget is used up; the next page goes on at the current position."""


@dataclass(slots=True)
class Budget:
    """What one request may still unpack. `is_late` says whether its time is over."""

    bytes_left: int
    records_left: int
    is_late: Callable[[], bool] = lambda: False
    batch_bytes: int = BATCH_BYTES_MAX
    batch_records: int = BATCH_RECORDS_MAX

    def is_spent(self) -> bool:
        return self.bytes_left <= 0 or self.records_left <= 0 or self.is_late()


def unpack(
    data: Buffer, aborted: Sequence[Aborted] | None, budget: Budget
) -> Iterator[Record | Oversized | int]:
    """The records of batches, and after each batch its next offset; Exhausted where the budget ends.

    With `aborted`, only batches that a read_committed consumer may see. The next offset matters for batches
    without visible records: control batches, aborted transactions. An `Oversized` stands for its batch.
    """
    buffer = memoryview(data)
    batches = list(iter_batches(buffer))
    shown = {at for at, _ in (batches if aborted is None else committed(buffer, batches, aborted))}
    for at, header in batches:
        if at in shown and not header.is_control:
            if budget.is_spent():
                raise Exhausted
            yield from _records(buffer[at : at + header.size], header, budget)
        yield header.next_offset


def _records(batch: memoryview, header: BatchHeader, budget: Budget) -> Iterator[Record | Oversized]:
    # Records that are not compressed are in memory already.
    limit = max(budget.batch_bytes, 0 if header.compression else len(batch))
    declared = _declared(batch, header)
    if header.record_count > budget.batch_records or (declared or 0) > limit:
        budget.bytes_left -= _OVERSIZED_CHARGE
        yield _oversized(header, declared, 0)
        return
    try:
        for record in iter_records(batch, limit):
            budget.bytes_left -= _size(record)
            budget.records_left -= 1
            yield record
            if budget.records_left <= 0 or (not budget.records_left % _LATE_EVERY and budget.is_late()):
                raise Exhausted
    except RecordListTooLarge:
        budget.bytes_left -= _OVERSIZED_CHARGE
        yield _oversized(header, None, limit)
    except CorruptMessage:
        # One batch that cannot be decoded must not hide the others.
        yield Record(header.base_offset, header.max_timestamp, None, None, (("penstock.corrupt", b"1"),))


def _size(record: Record) -> int:
    """The bytes of a record in memory, roughly."""
    size = _OVERHEAD + len(record.key or b"") + len(record.value or b"")
    return size + sum(_OVERHEAD + len(name) + len(value or b"") for name, value in record.headers)


def _declared(batch: memoryview, header: BatchHeader) -> int | None:
    """The uncompressed size that a compressed batch declares, if it does; it may be wrong."""
    try:
        return check_frame(Codec(header.compression), batch[HEADER_SIZE:])
    except (ValueError, CorruptMessage):
        return None


def _oversized(header: BatchHeader, declared: int | None, at_least: int) -> Oversized:
    return Oversized(
        header.base_offset,
        header.last_offset,
        header.max_timestamp,
        header.record_count,
        header.size,
        at_least if declared is None else declared,
        declared is not None,
    )
