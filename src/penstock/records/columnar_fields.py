"""The fields of records as numpy arrays and Arrow columns, for `records.columnar`.

One tight loop walks the lengths of records to find where each starts; numpy reads every other field at all
those places at once. Every position is checked to lie within the bytes before it is read or becomes part of a
view; an index beyond them is an IndexError, which the caller turns into CorruptMessage.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.varint import LONG_BYTES_MAX, decode_varint

__all__ = ["HEADERS_TYPE", "Bytes", "Fields", "Ints", "copied", "headers_of", "read_fields", "walk"]

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

#: Up to so many bytes lie in an Arrow view itself, not where it points.
_INLINE_BYTES_MAX: Final = 12

_HEADER_FIELDS: Final = [pa.field("key", pa.string()), pa.field("value", pa.binary())]
HEADERS_TYPE: Final = pa.list_(pa.field("element", pa.struct(_HEADER_FIELDS)))

#: By the first byte of a length: how far on the next record is, as far as that byte shows. Signs are ignored:
#: a negative length shows later.
_STEP: Final = tuple(1 + (byte >> 1) if byte < 0x80 else 2 + ((byte & 0x7F) >> 1) for byte in range(256))
#: And what its second byte adds: where that is not the last one either, more than there is data.
_ASTRAY: Final = 1 << 62
_MORE: Final = tuple(byte << 6 if byte < 0x80 else _ASTRAY for byte in range(256))


class Fields(NamedTuple):
    """Where the content of records lies; lengths of -1 are nulls."""

    timestamp_delta: Ints
    offset_delta: Ints
    key_at: Ints
    key_length: Ints
    value_at: Ints
    value_length: Ints
    #: where the number of headers stands, and the first byte behind the record
    headers_at: Ints
    end: Ints


def walk(data: Buffer, position: int, count: int, starts: list[int]) -> int:
    """Append where each of `count` records starts; the position behind the last of them."""
    step, more, at = _STEP, _MORE, position
    try:
        ends = [
            at := at + (step[byte] if (byte := data[at]) < 0x80 else step[byte] + more[data[at + 1]])
            for _ in repeat(None, count)
        ]
    except IndexError:
        # A length of three bytes led astray, or the records are not what they seem.
        return _walk_any(data, position, count, starts)
    if at >= _ASTRAY:
        return _walk_any(data, position, count, starts)
    starts.append(position)
    starts += ends
    starts.pop()
    return at


def _walk_any(data: Buffer, position: int, count: int, starts: list[int]) -> int:
    """The same for records of any length, at half the pace."""
    try:
        for _ in range(count):
            starts.append(position)
            length, position = decode_varint(data, position)
            if length < 0:
                raise CorruptMessage(f"a record of {length} bytes")
            position += length
    except IndexError as e:
        raise CorruptMessage("a record goes on behind its batch") from e
    return position


def read_fields(data: Bytes, starts: Ints, *, with_content: bool = True) -> Fields:
    """The fields of the records at `starts`; keys, values and headers only if the query has these columns."""
    length, body = _varints(data, starts)
    end = body + length
    # the record's attributes follow the length; they are unused
    timestamp_delta, at = _varints(data, body + 1)
    offset_delta, at = _varints(data, at)
    if not with_content:
        if int(end[-1]) > len(data):
            raise CorruptMessage("a record that goes on behind its batch")
        return Fields(timestamp_delta, offset_delta, at, at, at, at, at, end)
    key_length, key_at = _varints(data, at)
    _check_lengths(key_length, len(data))
    value_length, value_at = _varints(data, key_at + np.maximum(key_length, 0))
    _check_lengths(value_length, len(data))
    headers_at = value_at + np.maximum(value_length, 0)
    # behind the value stands at least the number of headers
    if bool((headers_at >= end).any()) or bool((length < 0).any()) or int(end[-1]) > len(data):
        raise CorruptMessage("a record whose key and value do not fit into it")
    return Fields(timestamp_delta, offset_delta, key_at, key_length, value_at, value_length, headers_at, end)


def _varints(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The varints at all the places `at`, and the places behind them."""
    first = data[at]
    is_longer = first >> 7
    zigzag = first.astype(np.int16)
    if is_longer.any():
        second = data[at + is_longer]
        if bool(((first & second) > 0x7F).any()):
            return _varints_any(data, at)
        # Two bytes at most, which is all that most have, can be counted in 16 bits.
        zigzag = (zigzag & 0x7F) + (second.astype(np.int16) << 7) * is_longer
    return ((zigzag >> 1) ^ -(zigzag & 1)).astype(np.int64), at + (1 + is_longer)


def _varints_any(data: Bytes, at: Ints) -> tuple[Ints, Ints]:
    """The same for varints of any length, at half the pace."""
    byte = data[at]
    zigzag = (byte & 0x7F).astype(np.uint64)
    at = at + 1
    longer = np.flatnonzero(byte > 0x7F)
    shift = 7
    while len(longer):
        if shift >= 7 * LONG_BYTES_MAX:
            raise CorruptMessage(f"a varint of more than {LONG_BYTES_MAX} bytes")
        byte = data[at[longer]]
        zigzag[longer] |= (byte & 0x7F).astype(np.uint64) << np.uint64(shift)
        at[longer] += 1
        longer = longer[byte > 0x7F]
        shift += 7
    one = np.uint64(1)
    return (zigzag >> one).view(np.int64) ^ -(zigzag & one).view(np.int64), at


def _check_lengths(lengths: Ints, most: int) -> None:
    if len(lengths) and (int(lengths.min()) < -1 or int(lengths.max()) > most):
        raise CorruptMessage(f"a length between {lengths.min()} and {lengths.max()} within {most} bytes")


def copied(data: Bytes, at: Ints, lengths: Ints) -> Any:
    """A binary array of the `lengths` bytes at each of `at`, all within `data`; null where a length is -1."""
    views = np.zeros((len(at), 4), np.int32)
    views[:, 0] = np.maximum(lengths, 0)
    views[:, 3] = at
    short = np.flatnonzero((lengths > 0) & (lengths <= _INLINE_BYTES_MAX))
    if len(short):
        views[short, 1:] = _inline(data, at[short])
    is_valid = lengths >= 0
    validity = None if is_valid.all() else pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(views), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary_view(), len(at), buffers).cast(pa.binary())


def _inline(data: Bytes, at: Ints) -> npt.NDArray[np.int32]:
    """The inline part of a view of the bytes at each of `at`."""
    size = _INLINE_BYTES_MAX
    if int(at.max()) + size > len(data):
        data = np.append(data, np.zeros(size, np.uint8))
    windows: npt.NDArray[np.void] = np.ndarray(len(data) - size + 1, f"V{size}", data, strides=(1,))
    return windows[at].view(np.int32).reshape(len(at), -1)


def headers_of(data: Bytes, fields: Fields) -> Any:
    """A list of (key, value) for each record: all first headers are read, then all second ones, …"""
    counts, at = _varints(data, fields.headers_at)
    _check_lengths(counts, len(data))
    if bool((counts < 0).any()):
        raise CorruptMessage("a record with a negative number of headers")
    first = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    if int(first[-1]) > len(data):
        raise CorruptMessage(f"{first[-1]} headers in {len(data)} bytes")
    places = np.zeros((4, int(first[-1])), np.int64)
    left = np.flatnonzero(counts)
    number = 0
    while len(left):
        key_length, key_at = _varints(data, at[left])
        _check_lengths(key_length, len(data))
        value_length, value_at = _varints(data, key_at + key_length)
        _check_lengths(value_length, len(data))
        if bool((key_length < 0).any()):
            raise CorruptMessage("a header without a key")
        at[left] = value_at + np.maximum(value_length, 0)
        places[:, first[left] + number] = key_at, key_length, value_at, value_length
        number += 1
        left = left[counts[left] > number]
    if bool((at != fields.end).any()):
        raise CorruptMessage("the headers of a record do not fill it")
    return _list_of_headers(data, places, first, counts == 0)


def _list_of_headers(data: Bytes, places: Ints, first: Ints, is_null: npt.NDArray[np.bool_]) -> Any:
    key_at, key_length, value_at, value_length = places
    keys, values = copied(data, key_at, key_length), copied(data, value_at, value_length)
    try:
        names = keys.cast(pa.string())
    except pa.ArrowInvalid:
        # like Java, show what is not UTF-8 rather than fail: clients may send any bytes
        names = pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
    pairs = pa.StructArray.from_arrays([names, values], fields=_HEADER_FIELDS)
    bounds = pa.array(first.astype(np.int32), mask=np.append(is_null, False) if is_null.any() else None)
    return pa.ListArray.from_arrays(bounds, pairs, type=HEADERS_TYPE)
