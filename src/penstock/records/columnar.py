"""Record batches as Arrow columns, without a Python object for each record.

Three steps, and only the first of them goes record by record: one tight loop walks the lengths of records to
find where each starts; numpy reads every other field at all those places at once; and an Arrow array of views
of keys, or of values, is cast to one that has their bytes, which copies in C. The bytes of a batch are walked
right after their checksum, while the processor's cache has them. Only readers of topics want this module: it
and `columnar_fields` alone of this package need numpy and pyarrow.

Invalid bytes of a batch raise CorruptMessage. Every position is checked to lie within the bytes before it is
read or becomes part of a view. The yielded columns have no view of the bytes: their buffer may be used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.batch import CRC_START, HEADER_SIZE, BatchHeader
from penstock.records.checksum import crc32c
from penstock.records.codecs import Codec
from penstock.records.columnar_fields import (
    HEADERS_TYPE,
    Fields,
    Ints,
    copied,
    headers_of,
    read_fields,
    walk,
)
from penstock.records.committed import PlacedBatch
from penstock.records.record import open_batch

__all__ = ["ALL_COLUMNS", "ALL_TIMES", "HEADERS_TYPE", "ROWS_MAX", "Wanted", "decode"]

#: As many batches are decoded together as have so many rows, and no more are yielded at once.
ROWS_MAX: Final = 16 << 10
#: Nor are more unpacked bytes than this held at once, unless a single batch has more.
_UNPACKED_BYTES_MAX: Final = 32 << 20
_MICROSECONDS: Final = 1000

_FIELDS: Final = [
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", pa.timestamp("us", "UTC")),
    pa.field("timestampType", pa.int32()),
]
_SCHEMA: Final = pa.schema([*_FIELDS, pa.field("headers", HEADERS_TYPE)])
#: all but the headers
ALL_COLUMNS: Final = frozenset(field.name for field in _FIELDS)
#: columns that are before the key in a record
_PLACES: Final = frozenset({"offset", "timestamp", "timestampType"})
ALL_TIMES: Final = range(-(1 << 63), (1 << 63) - 1)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a reader wants of batches. Whatever is not wanted is not decoded, as far as that can be."""

    offsets: range
    columns: frozenset[str] = ALL_COLUMNS
    #: timestamps in milliseconds
    times: range = ALL_TIMES
    #: whether the checksums of batches are compared; not if the bytes have passed others
    verify: bool = True

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([each for each in _SCHEMA if each.name in self.columns])

    @property
    def walks(self) -> bool:
        """Whether records are looked at. The header of a batch without gaps has the offsets of all."""
        return self.limits_time or not self.columns <= {"offset", "timestampType"}

    @property
    def limits_time(self) -> bool:
        return self.times != ALL_TIMES

    def has(self, header: BatchHeader) -> bool:
        """Whether a batch may have records that are wanted."""
        if header.last_offset < self.offsets.start or header.base_offset >= self.offsets.stop:
            return False
        if header.max_timestamp < self.times.start and header.max_timestamp >= 0:
            return False
        return header.record_count != 0 and not header.is_control


@dataclass(slots=True)
class _Group:
    """Batches that are decoded together: either all were compressed, or none was."""

    #: what their uncompressed records lie in, perhaps among other bytes: a bytearray if they were unpacked
    data: memoryview | bytearray
    batches: list[BatchHeader] = field(default_factory=list)
    #: where in `data` each record starts
    starts: list[int] = field(default_factory=list)

    @property
    def is_packed(self) -> bool:
        return isinstance(self.data, bytearray)

    def has_room(self, header: BatchHeader) -> bool:
        """Whether one more batch can be decoded together with these."""
        if (header.compression != Codec.NONE) != self.is_packed:
            return False
        if self.is_packed and len(self.data) >= _UNPACKED_BYTES_MAX:
            return False
        return len(self.starts) + header.record_count <= ROWS_MAX

    def add(self, batch: memoryview, header: BatchHeader, position: int, verify: bool) -> None:
        """Check the batch at `position`, and find its records while they are in the processor's cache."""
        if verify:
            _check(batch, header)
        start, end = position + HEADER_SIZE, position + header.size
        if isinstance(self.data, bytearray):
            start = len(self.data)
            self.data += open_batch(batch)[1]
            end = len(self.data)
        count = header.record_count
        if count < 0 or walk(self.data, start, count, self.starts) != end:
            raise CorruptMessage(f"{count} records that do not fill their batch")
        self.batches.append(header)


def _check(batch: memoryview, header: BatchHeader) -> None:
    if crc32c(batch[CRC_START:]) != header.crc:
        raise CorruptMessage(f"the batch at offset {header.base_offset} does not match its checksum")


def decode(data: Buffer, batches: Iterable[PlacedBatch], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    """The wanted records of `batches` in `data`, control batches left out.

    Columns: those wanted of key, value, offset, timestamp, timestampType and headers (null if there are
    none), in this order. Each yield has between 1 and `ROWS_MAX` rows.
    """
    schema = wanted.schema
    for group in _groups(data, batches, wanted):
        rows = _decode_group(group, wanted, schema) if isinstance(group, _Group) else _numbered(group, wanted)
        for start in range(0, rows.num_rows, ROWS_MAX):
            yield rows.slice(start, ROWS_MAX)


def _groups(
    data: Buffer, batches: Iterable[PlacedBatch], wanted: Wanted
) -> Iterator[_Group | list[BatchHeader]]:
    """Batches that are decoded together, or whose headers say all that is wanted."""
    view = memoryview(data)
    group: _Group | None = None
    numbered: list[BatchHeader] = []
    walks = wanted.walks
    for position, header in batches:
        if not wanted.has(header):
            continue
        batch = view[position : position + header.size]
        if not walks and header.record_count == header.last_offset_delta + 1:
            if group is not None:
                yield group
                group = None
            if wanted.verify:
                _check(batch, header)
            numbered.append(header)
            continue
        if numbered:
            yield numbered
            numbered = []
        if group is None or not group.has_room(header):
            if group is not None:
                yield group
            group = _Group(view if header.compression == Codec.NONE else bytearray())
        group.add(batch, header, position, wanted.verify)
    if numbered:
        yield numbered
    if group is not None:
        yield group


def _numbered(batches: list[BatchHeader], wanted: Wanted) -> pa.RecordBatch:
    """Offsets and types of timestamps, of headers alone."""
    limits = wanted.offsets
    parts = [
        np.arange(max(batch.base_offset, limits.start), min(batch.next_offset, limits.stop), dtype=np.int64)
        for batch in batches
    ]
    stamped = [batch.is_log_append_time for batch in batches]
    types = np.repeat(np.array(stamped, np.int32), [len(part) for part in parts])
    columns = {"offset": pa.array(np.concatenate(parts)), "timestampType": pa.array(types)}
    schema = wanted.schema
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _decode_group(group: _Group, wanted: Wanted, schema: pa.Schema) -> pa.RecordBatch:
    data = np.frombuffer(group.data, np.uint8)
    try:
        fields = read_fields(
            data, np.array(group.starts, np.int64), with_content=not wanted.columns <= _PLACES
        )
        counts = [batch.record_count for batch in group.batches]
        offsets = _per_record(counts, [batch.base_offset for batch in group.batches]) + fields.offset_delta
        timestamps, types = _timestamps(group.batches, counts, fields.timestamp_delta)
        rows = _chosen(offsets, timestamps, wanted)
        if rows is not None:
            fields = Fields(*(column[rows] for column in fields))
            offsets, timestamps, types = offsets[rows], timestamps[rows], types[rows]
        columns: dict[str, Callable[[], Any]] = {
            "key": lambda: copied(data, fields.key_at, fields.key_length),
            "value": lambda: copied(data, fields.value_at, fields.value_length),
            "offset": lambda: pa.array(offsets),
            "timestamp": lambda: pa.array(timestamps * _MICROSECONDS).view(_FIELDS[3].type),
            "timestampType": lambda: pa.array(types),
            "headers": lambda: headers_of(data, fields),
        }
        return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema=schema)
    except IndexError as e:
        raise CorruptMessage("a record goes on behind its batch") from e


def _chosen(offsets: Ints, timestamps: Ints, wanted: Wanted) -> Ints | None:
    """The rows that are wanted; None if all are."""
    limits, times = wanted.offsets, wanted.times
    chosen = None
    if offsets.min() < limits.start or offsets.max() >= limits.stop:
        chosen = (offsets >= limits.start) & (offsets < limits.stop)
    if wanted.limits_time and (timestamps.min() < times.start or timestamps.max() >= times.stop):
        in_time = (timestamps >= times.start) & (timestamps < times.stop)
        chosen = in_time if chosen is None else chosen & in_time
    return None if chosen is None else np.flatnonzero(chosen)


def _per_record(counts: list[int], values: list[int]) -> Ints:
    """One value for each batch, repeated for each of its records."""
    return np.repeat(np.array(values, np.int64), counts)


def _timestamps(
    batches: list[BatchHeader], counts: list[int], delta: Ints
) -> tuple[Ints, npt.NDArray[np.int32]]:
    """Milliseconds, and 1 where the broker stamped the batch: then that holds for all its records."""
    milliseconds = _per_record(counts, [batch.base_timestamp for batch in batches]) + delta
    stamped = np.repeat(np.array([batch.is_log_append_time for batch in batches], np.int32), counts)
    if stamped.any():
        append_time = _per_record(counts, [batch.max_timestamp for batch in batches])
        milliseconds = np.where(stamped, append_time, milliseconds)
    return milliseconds, stamped
