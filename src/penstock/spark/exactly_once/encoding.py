"""Arrow columns as record batches, without a Python object for each row.

numpy computes the lengths and varints of all rows at once, and Arrow joins them with keys and values in C.
The rows of an Arrow batch are encoded together, in the order of their partitions; a record batch is a slice
of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.records.varint import encode_varint

__all__ = ["Chunk", "Ints", "chunks", "encode_headers"]

Ints: TypeAlias = npt.NDArray[np.int64]
#: of a varint of lengths and offset deltas, which have 31 bits
_VARINT_BYTES: Final = 5
#: attributes, and the difference to the timestamp of the batch
_FIXED_BYTES: Final = 2
_NO_HEADERS: Final = b"\x00"


class Chunk(NamedTuple):
    """The encoded records of one record batch."""

    #: which of the groups of `chunks` they belong to
    group: int
    records: memoryview
    rows: int


def chunks(keys: Any, values: Any, headers: Any, groups: Ints, bytes_max: int) -> Iterator[Chunk]:
    """Rows as records, in the order of their `groups`, and in each in their own order.

    `keys` and `headers` are binary arrays or None, `values` is a binary array. A chunk has at most
    `bytes_max` bytes, unless a single row has more.
    """
    if not len(groups):
        return
    if groups[0] != groups[-1] or (groups != groups[0]).any():
        order = np.argsort(groups, kind="stable")
        groups = groups[order]
        taken = pa.array(order)
        keys, values, headers = (
            None if each is None else each.take(taken) for each in (keys, values, headers)
        )
    sizes, key_lengths, value_lengths = _sizes(keys, values, headers)
    starts = _starts(groups, sizes, bytes_max)
    counts = np.diff(np.append(starts, len(groups)))
    deltas = np.arange(len(groups)) - np.repeat(starts, counts)
    bodies = sizes + _varint_sizes(deltas)
    heads = _varints(bodies, None, deltas, key_lengths)
    parts = [heads, _filled(keys), _varints(value_lengths), _filled(values), headers]
    joined = pc.binary_join_element_wise(
        *(part for part in parts if part is not None), b"" if headers is not None else _NO_HEADERS, b""
    )
    offsets = np.frombuffer(joined.buffers()[1], np.int32)[joined.offset : joined.offset + len(joined) + 1]
    data = memoryview(joined.buffers()[2])
    for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
        yield Chunk(int(groups[start]), data[offsets[start] : offsets[start + count]], count)


def encode_headers(column: Any) -> Any:
    """A column of lists of (key, value) as the bytes of records, with the number of headers."""
    return pa.array([_headers(each) for each in column.to_pylist()], pa.binary())


def _headers(headers: list[dict[str, Any]] | None) -> bytes:
    if not headers:
        return _NO_HEADERS
    parts = [encode_varint(len(headers))]
    for header in headers:
        name = header["key"].encode()
        parts += (encode_varint(len(name)), name)
        value = header["value"]
        parts += (b"\x01",) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


def _sizes(keys: Any, values: Any, headers: Any) -> tuple[Ints, Ints, Ints]:
    """Bytes of each row without its length and offset delta; the lengths of key and value, -1 if null."""
    key_lengths = _lengths(keys) if keys is not None else np.full(len(values), -1)
    value_lengths = _lengths(values)
    sizes = _FIXED_BYTES + _varint_sizes(key_lengths) + np.maximum(key_lengths, 0)
    sizes += _varint_sizes(value_lengths) + np.maximum(value_lengths, 0)
    sizes += 1 if headers is None else _lengths(headers)
    return sizes, key_lengths, value_lengths


def _lengths(column: Any) -> Ints:
    lengths = pc.fill_null(pc.binary_length(column), -1)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)


def _filled(column: Any) -> Any:
    if column is None or not column.null_count:
        return column
    return pc.fill_null(column, b"")


def _starts(groups: Ints, sizes: Ints, bytes_max: int) -> Ints:
    """The first row of each chunk."""
    bounds = np.flatnonzero(np.diff(groups)) + 1
    ends = np.append(bounds, len(groups))
    # Up to 10 bytes more for the length and the offset delta.
    total = np.cumsum(sizes + 2 * _VARINT_BYTES)
    starts = []
    first = 0
    for end in ends.tolist():
        while first < end:
            starts.append(first)
            before = int(total[first - 1]) if first else 0
            first = max(first + 1, min(end, int(np.searchsorted(total, before + bytes_max, "right"))))
    return np.array(starts, np.int64)


def _zigzag(numbers: Ints) -> Ints:
    return (numbers << 1) ^ (numbers >> 63)


def _varint_sizes(numbers: Ints) -> Ints:
    zigzag = _zigzag(numbers)
    sizes = np.ones(len(numbers), np.int64)
    for bits in range(7, 7 * _VARINT_BYTES, 7):
        sizes += zigzag >= (1 << bits)
    return sizes


def _varints(*columns: Ints | None) -> Any:
    """For each row the varints of all columns, one behind the other; None stands for the fixed bytes."""
    rows = next(len(each) for each in columns if each is not None)
    width = sum(_FIXED_BYTES if each is None else _VARINT_BYTES for each in columns)
    grid = np.zeros((rows, width), np.uint8)
    used = np.zeros((rows, width), np.bool_)
    at = 0
    for column in columns:
        if column is None:
            used[:, at : at + _FIXED_BYTES] = True
            at += _FIXED_BYTES
            continue
        rest = _zigzag(column)
        used[:, at] = True
        for place in range(at, at + _VARINT_BYTES):
            grid[:, place] = rest & 0x7F
            rest = rest >> 7
            more = rest > 0
            if not more.any():
                break
            grid[:, place] |= more.astype(np.uint8) << 7
            used[:, place + 1] = more
        at += _VARINT_BYTES
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    return pa.BinaryArray.from_buffers(
        pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(grid[used])]
    )
