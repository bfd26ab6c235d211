"""The structural check of records whose values, and perhaps keys, differ in length, by columns as well.

The lengths lead from record to record, one step of a list comprehension each. The first bytes of all records,
put behind one another, are a table with rows of one width, so that a field is a column again. The fields of
records without headers fill them if length = overhead + key + value; that is one addition over all records,
of integers with 32 bits for each.

Only records of one kind are covered: below 8 KB, without headers, with a value, with keys below 64 bytes or
without any, with deltas in as many bytes as those of the record before. A record of another kind ends it.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from penstock.records.varint import LONG_BYTES_MAX, decode_varint

__all__ = ["ASCII", "DELTAS", "FLIPPED", "Data", "Rows", "common", "offset_columns", "varied_rows"]

Data: TypeAlias = bytes | bytearray

#: how many offset deltas fit into a varint of one, two and three bytes; the columns of such varints
DELTAS: Final = (1 << 6, 1 << 13, 1 << 20)
_ONE_BYTE: Final = bytes(2 * delta for delta in range(DELTAS[0]))
_FIRST_BYTE: Final = bytes(2 * delta | 0x80 for delta in range(DELTAS[0]))
_SECOND_OF_TWO: Final = bytes(delta >> 6 for delta in range(DELTAS[1]))
_SECOND_OF_THREE: Final = bytes(delta >> 6 | 0x80 for delta in range(DELTAS[1]))
ASCII: Final = bytes(range(0x80))
#: with a continuation bit where there was none, and without one where there was
FLIPPED: Final = bytes(byte ^ 0x80 for byte in range(0x100))

#: how many rows a table has at first, and at most
_ROWS_MIN: Final = 32
_ROWS_GROWTH: Final = 8
_ROWS_MAX: Final = 2048
#: bytes of a row, and how many of them precede the record's attributes: as many as its length may take
_ROW: Final = 16
_BODY: Final = 2
#: a value's length
_TAIL: Final = 2
#: further than any batch: a negative length, or one of more than two bytes
_ASTRAY: Final = 1 << 40
_EVEN: Final = bytes(range(0, 0x100, 2))
_EVEN_ASCII: Final = bytes(range(0, 0x80, 2))
_STEP: Final = [_ASTRAY if byte & 1 else (byte & 0x7F) // 2 + 1 + (byte >> 7) for byte in range(0x100)]
_MORE: Final = [_ASTRAY if byte & 0x80 else byte << 6 for byte in range(0x100)]
#: the bytes of a length as those of a number of 32 bits
_LOW: Final = bytes((byte & 0x7F) >> 1 for byte in range(0x100))
_CARRIED: Final = bytes((byte & 3) << 6 for byte in range(0x100))
_HIGH: Final = bytes(byte >> 2 for byte in range(0x100))
_IS_LONGER: Final = bytes(0xFF * (byte >> 7) for byte in range(0x100))
_SHIFTED_OUT: Final = bytes(byte >> 7 for byte in range(0x100))
_NULL: Final = 1


class Rows(NamedTuple):
    """The records that a table covers."""

    records: int
    #: behind the last of them
    end: int
    #: the bytes of their timestamp deltas: all first ones, all second ones, …
    timestamps: list[bytes]


class _Kind(NamedTuple):
    """How many bytes the deltas of a record take, and whether its key is null."""

    timestamp: int
    offset: int
    is_null_key: bool


def varied_rows(data: Data, start: int, position: int, size: int, index: int, count: int) -> Rows:
    """The valid records from `position` on that are of the kind of the valid one at `start`.

    Some at the end may be missing. `index` is the number of the first, `count` that of all in the batch.
    Tables grow, so that a record of another kind soon after the first costs little.
    """
    kind = _kind_of(data, start)
    records, end, timestamps = 0, position, [b""] * (kind.timestamp if kind else 0)
    wanted = _ROWS_MIN
    while kind is not None:
        most = min(count, DELTAS[kind.offset - 1], index + records + wanted) - index - records
        starts, ends = _bounds(data, end, size, most)
        rows, columns = _table(data, starts, ends, index + records, kind)
        if rows:
            records, end = records + rows, ends[rows - 1]
            timestamps = [all_ + column for all_, column in zip(timestamps, columns, strict=True)]
        if rows < wanted:
            break
        wanted = min(_ROWS_GROWTH * wanted, _ROWS_MAX)
    return Rows(records, end, timestamps)


def _kind_of(data: Data, start: int) -> _Kind | None:
    _, body = decode_varint(data, start)
    _, offset = decode_varint(data, body + 1, LONG_BYTES_MAX)
    _, key = decode_varint(data, offset)
    kind = _Kind(offset - body - 1, key - offset, data[key] == _NULL)
    is_covered = kind.offset <= len(DELTAS) and key + 1 + _TAIL - body <= _ROW - _BODY
    return kind if is_covered else None


def _bounds(data: Data, position: int, size: int, most: int) -> tuple[list[int], list[int]]:
    """Where up to `most` records start and end, as their lengths say, if these have one or two bytes."""
    step, more, at = _STEP, _MORE, position
    try:
        ends = [
            at := at + (step[byte] if (byte := data[at]) < 0x80 else step[byte] + more[data[at + 1]])
            for _ in repeat(None, most)
        ]
    except IndexError:
        return [], []
    del ends[bisect_right(ends, size) :]
    starts = [position, *ends]
    # Every row has all of its bytes.
    rows = min(len(ends), bisect_right(starts, len(data) - _ROW))
    return starts[:rows], ends[:rows]


def _table(
    data: Data, starts: list[int], ends: list[int], index: int, kind: _Kind
) -> tuple[int, list[bytes]]:
    """How many records are valid and of the kind, and the columns of their timestamp deltas."""
    if not starts:
        return 0, []
    bodies = [start + 1 + (data[start] >> 7) for start in starts]
    table = b"".join([data[body - _BODY : body - _BODY + _ROW] for body in bodies])
    # No headers: the last byte of every record is 0.
    counts = bytes([data[end - 1] for end in ends])
    rows, timestamps = _matching(table, _leading(counts, b"\x00"), index, kind)
    at = _BODY + 1 + kind.timestamp + kind.offset
    keys = table[at : rows * _ROW : _ROW]
    if kind.is_null_key:
        first, second = (table[at + 1 + byte : rows * _ROW : _ROW] for byte in range(_TAIL))
    else:
        # The value's length is behind the key.
        places = [at - 1 + body + (key >> 1) for body, key in zip(bodies, keys, strict=False)]
        tails = b"".join([data[place : place + _TAIL] for place in places])
        if len(tails) < rows * _TAIL:
            return 0, []
        first, second = tails[::_TAIL], tails[1::_TAIL]
    rows = _leading(first, _EVEN)
    overhead = at - _BODY + 3
    lengths = _numbers(*(table[byte : rows * _ROW : _ROW] for byte in range(_BODY)), is_last=True)
    total = int.from_bytes(overhead.to_bytes(4, "little") * rows, "little")
    total += _numbers(first[:rows], second[:rows], is_last=False)
    if not kind.is_null_key:
        total += _lanes(keys[:rows].translate(_LOW))
    if not rows or total != lengths:
        return 0, []
    return rows, [column[:rows] for column in timestamps]


def _matching(table: bytes, rows: int, index: int, kind: _Kind) -> tuple[int, list[bytes]]:
    """The number of `rows` whose deltas and keys are of the kind, and the columns of timestamps."""
    at = _BODY + 1
    columns = []
    for byte in range(kind.timestamp):
        columns.append(table[at + byte : rows * _ROW : _ROW])
        rows = min(rows, _continued(columns[-1], byte < kind.timestamp - 1))
    at += kind.timestamp
    for byte, expected in enumerate(offset_columns(index, rows, kind.offset)):
        rows = min(rows, common(table[at + byte : rows * _ROW : _ROW], expected))
    keys = table[at + kind.offset : rows * _ROW : _ROW]
    return _leading(keys, bytes((_NULL,)) if kind.is_null_key else _EVEN_ASCII), columns


def _continued(column: bytes, is_continued: bool) -> int:
    """How many bytes at the start of `column` have a continuation bit, or have none."""
    if is_continued:
        column = column.translate(FLIPPED)
    return len(column) if column.isascii() else len(column) - len(column.lstrip(ASCII))


def _leading(column: bytes, allowed: bytes) -> int:
    """How many bytes at the start of `column` are among those `allowed`."""
    # Deleting them all is twenty times faster than stripping them.
    return len(column) - len(column.lstrip(allowed)) if column.translate(None, allowed) else len(column)


def _numbers(first: bytes, second: bytes, *, is_last: bool) -> int:
    """Lengths in one or two bytes, as one integer with 32 bits for each, and what their own bytes take.

    A length of one byte is in `second` if `is_last`, and in `first` otherwise. A second byte with a
    continuation bit gives a number that no record has.
    """
    two = first.translate(_IS_LONGER)
    is_two = _lanes(two, two)
    low, carried, high = first.translate(_LOW), second.translate(_CARRIED), second.translate(_HIGH)
    if not is_last:
        # One byte more than the overhead counts.
        widths = _lanes(first.translate(_SHIFTED_OUT))
        return _lanes(low) + (_lanes(carried, high) & is_two) + widths
    one = _lanes(second.translate(_LOW)) & ~is_two
    return (_lanes(low) & is_two) + (_lanes(carried, high) & is_two) + one


def _lanes(low: bytes, high: bytes | None = None) -> int:
    """One integer with 32 bits for each byte of `low`, and the next higher byte from `high`."""
    lanes = bytearray(4 * len(low))
    lanes[::4] = low
    if high is not None:
        lanes[1::4] = high
    return int.from_bytes(lanes, "little")


def offset_columns(index: int, count: int, width: int) -> tuple[bytes, ...]:
    """The first bytes of the offset deltas from `index` on, then the second ones, up to `width` bytes."""
    if width == 1:
        return (_ONE_BYTE[index : index + count],)
    first = _repeated(_FIRST_BYTE, index, count)
    if width == 2:
        return first, _SECOND_OF_TWO[index : index + count]
    third = bytearray()
    while len(third) < count:
        high, low = divmod(index + len(third), DELTAS[1])
        third += bytes((high,)) * min(DELTAS[1] - low, count - len(third))
    return first, _repeated(_SECOND_OF_THREE, index, count), bytes(third)


def _repeated(pattern: bytes, index: int, count: int) -> bytes:
    first = index % len(pattern)
    return (pattern * ((first + count) // len(pattern) + 1))[first : first + count]


def common(column: Data, expected: bytes) -> int:
    """How many bytes the two have in common before they differ."""
    if column == expected[: len(column)]:
        return len(column)
    low, high = 0, len(column)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if column[:middle] == expected[:middle] else (low, middle - 1)
    return low
