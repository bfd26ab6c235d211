"""Structural check of a batch's uncompressed records, without decoding them.

Every length must be within the record, the fields of a record must fill it exactly, the records must fill the
batch exactly, and offset deltas must be 0, 1, 2, … A batch that passes can be read by every consumer.

Why columns: a loop over records takes about half a microsecond for each. Records of equal length have their
fields at equal distances, so one byte of a field over all of them is a strided slice, and the comparison of
such a column with the expected one takes nanoseconds per record. Producers that send records of one size, and
number and date them in order, change the length only where an offset delta or a timestamp delta gets one byte
longer. Records of other lengths take ten times as long (`varied`), and the rest is checked one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from penstock.model.errors import CorruptMessage
from penstock.records.varied import ASCII, DELTAS, FLIPPED, Data, common, offset_columns, varied_rows
from penstock.records.varint import INT_BYTES_MAX, LONG_BYTES_MAX, decode_varint, encode_varint

__all__ = ["RUN_RECORDS_MIN", "Data", "Facts", "TooManyRecords", "check_records", "is_plain_record"]

#: batches of fewer records are checked one by one, and may be memoryviews
RUN_RECORDS_MIN: Final = 16

#: the comparison of a run takes windows that grow by a factor, so that a short run costs little
_WINDOW_FIRST: Final = 32
_WINDOW_GROWTH: Final = 16
#: columns of fewer records did not pay: the next ones are looked for later, and later again
_SHORT_RUN: Final = 8
#: how many records of varied and of equal lengths are checked in the time that one alone takes
_VARIED_PER_ALONE: Final = 8
_EQUAL_PER_ALONE: Final = 64
_EVEN: Final = bytes(range(0, 0x100, 2))
_WITHOUT_CONTINUATION: Final = bytes(byte & 0x7F for byte in range(0x100))
_UP_TO: Final = tuple(bytes(range(byte + 1)) for byte in range(0x80))
_NULL: Final = 1
#: as many sizes of plain records as are remembered
_PLAIN_HEADS_MAX: Final = 4096
_plain_heads: Final[dict[int, bytes]] = {}
_TIMESTAMP_DELTA_MIN: Final = -(1 << 63)


class Facts(NamedTuple):
    """Properties of a batch that its valid records determine."""

    #: the largest timestamp, as a distance from the base timestamp of the batch
    timestamp_delta_max: int
    has_null_key: bool


class TooManyRecords(Exception):
    """More records have to be checked one by one than the caller allows."""


class _Layout(NamedTuple):
    """Where the structure of a record lies, as distances from the start of the record."""

    size: int
    timestamp: range
    offset: range
    #: (distance, byte) of lengths and counts, which are the same in every record of a run
    constants: tuple[tuple[int, int], ...]


def is_plain_record(data: Data | memoryview, position: int, size: int) -> bool:
    """Whether `data[position:size]` is the usual record of a batch of one: without key, headers and deltas.

    Then its bytes but for the value follow from its size.
    """
    length = size - position
    head = _plain_heads.get(length) or _plain_head(length)
    return data[position : position + len(head)] == head and not data[size - 1]


def _plain_head(length: int) -> bytes:
    """The bytes before the value of a plain record of `length` bytes; no record's bytes if there is none."""
    head = b"\xff" * (INT_BYTES_MAX + 1)
    for body in range(max(length - INT_BYTES_MAX, 0), length):
        for value in range(max(body - 5 - INT_BYTES_MAX, 0), body - 5):
            # attributes, timestamp delta, offset delta and a null key; no headers follow the value
            tried = encode_varint(body) + b"\x00\x00\x00\x01" + encode_varint(value)
            if len(encode_varint(body)) + body == length == len(tried) + value + 1:
                head = tried
    if len(_plain_heads) < _PLAIN_HEADS_MAX:
        _plain_heads[length] = head
    return head


def check_records(
    data: Data | memoryview, position: int, size: int, count: int, slow_max: int | None = None
) -> Facts:
    """Check that `data[position:size]` is exactly `count` records; CorruptMessage where it is not.

    TooManyRecords if more than `slow_max` of them have an irregular shape, which takes long.
    """
    largest, has_null_key = _TIMESTAMP_DELTA_MIN, False
    index, slow, patience = 0, 0, _SHORT_RUN
    columns_from = 1 if count >= RUN_RECORDS_MIN else count
    try:
        while index < count:
            if slow_max is not None and slow >= slow_max:
                raise TooManyRecords
            slow += 1
            start = position
            position, delta, is_null_key = _check_record(data, start, size, index)
            index += 1
            largest = max(largest, delta)
            has_null_key = has_null_key or is_null_key
            if columns_from <= index < count and not isinstance(data, memoryview):
                records, position, delta, cost = _check_columns(data, start, position, size, index, count)
                largest = max(largest, delta)
                index += records
                slow += cost
                patience = 2 * patience if records < _SHORT_RUN else _SHORT_RUN
                columns_from = index + patience if records < _SHORT_RUN else index
    except IndexError as e:
        raise CorruptMessage(f"{count} records go on behind the {size} bytes of their batch") from e
    if position != size:
        raise CorruptMessage(f"{size - position} bytes are left behind {count} records")
    return Facts(largest, has_null_key)


def _check_record(data: Data | memoryview, start: int, size: int, index: int) -> tuple[int, int, bool]:
    """(end, timestamp delta, whether the key is null) of the record at `start`.

    Reads each varint of one or two bytes in place: this is the loop's body for irregular records. Positions
    may leave the record before its end is compared, but what lies there is only read.
    """
    length, at = data[start], start + 1
    if length > 0x7F:
        length, at = (length & 0x7F | more << 7, at + 1) if (more := data[at]) < 0x80 else _long(data, start)
    end = at + (length >> 1)
    if length & 1 or end > size:
        raise CorruptMessage(f"record {index} does not fit into its batch")
    at += 2
    timestamp = data[at - 1]
    if timestamp > 0x7F:
        timestamp, at = (
            (timestamp & 0x7F | more << 7, at + 1)
            if (more := data[at]) < 0x80
            else _long(data, at - 1, LONG_BYTES_MAX)
        )
    offset = data[at]
    at += 1
    if offset > 0x7F:
        offset, at = (offset & 0x7F | more << 7, at + 1) if (more := data[at]) < 0x80 else _long(data, at - 1)
    if offset != index << 1:
        raise CorruptMessage(f"record {index} has offset delta {_signed(offset)}")
    key = data[at]
    at += 1
    if key > 0x7F:
        key, at = (key & 0x7F | more << 7, at + 1) if (more := data[at]) < 0x80 else _long(data, at - 1)
    if not key & 1:
        at += key >> 1
    value = data[at]
    at += 1
    if value > 0x7F:
        value, at = (value & 0x7F | more << 7, at + 1) if (more := data[at]) < 0x80 else _long(data, at - 1)
    if not value & 1:
        at += value >> 1
    at = at + 1 if not data[at] else _check_headers(data, at, end, index)
    if at != end or (key & 1 and key != _NULL) or (value & 1 and value != _NULL):
        raise CorruptMessage(f"the fields of record {index} do not fill it")
    return end, (timestamp >> 1) ^ -(timestamp & 1), key == _NULL


def _check_headers(data: Data | memoryview, at: int, end: int, index: int) -> int:
    """The position behind the headers whose count is at `at`."""
    count, at = decode_varint(data, at)
    if not 0 <= count <= end - at:
        raise CorruptMessage(f"record {index} has {count} headers")
    for _ in range(count):
        key, at = decode_varint(data, at)
        if key < 0:
            raise CorruptMessage(f"record {index} has a header without a key")
        value, at = decode_varint(data, at + key)
        if value < -1:
            raise CorruptMessage(f"record {index} has a header of {value} bytes")
        at += max(value, 0)
        if at > end:
            raise CorruptMessage(f"the headers of record {index} do not fit into it")
    return at


def _long(data: Data | memoryview, at: int, bytes_max: int = 5) -> tuple[int, int]:
    """A zigzag varint of any length, not decoded to a signed number, and the position behind it."""
    value, at = decode_varint(data, at, bytes_max)
    return (value << 1) ^ (value >> 63), at


def _signed(zigzag: int) -> int:
    return (zigzag >> 1) ^ -(zigzag & 1)


# -- runs of records that have the same layout


def _check_columns(
    data: Data, start: int, position: int, size: int, index: int, count: int
) -> tuple[int, int, int, int]:
    """Check records from `position` on that are like the valid one at `start`.

    Returns how many they are, the position behind them, their largest timestamp delta, and the cost of the
    check in records that are checked one by one.
    """
    records, largest = 0, _TIMESTAMP_DELTA_MIN
    if data[start] == data[position]:
        records, largest = _check_run(data, start, position, size, index, count)
        position += records * (position - start)
    if records < _SHORT_RUN and index + records < count:
        rows = varied_rows(data, start, position, size, index + records, count)
        if rows.records:
            cost = rows.records // _VARIED_PER_ALONE
            return records + rows.records, rows.end, max(largest, _largest(rows.timestamps)), cost
    return records, position, largest, records // _EQUAL_PER_ALONE


def _check_run(data: Data, start: int, position: int, size: int, index: int, count: int) -> tuple[int, int]:
    """How many records from `position` on have the layout of the valid one at `start`.

    Also their largest timestamp delta.
    """
    layout = _layout_of(data, start)
    width = len(layout.offset)
    if width > len(DELTAS):
        return 0, _TIMESTAMP_DELTA_MIN
    most = min(count, DELTAS[width - 1]) - index
    most = min(most, (size - position) // layout.size)
    records, window, largest = 0, _WINDOW_FIRST, _TIMESTAMP_DELTA_MIN
    while records < most:
        wanted = min(window, most - records)
        at = position + records * layout.size
        found, timestamps = _matching(data, at, wanted, index + records, layout)
        if found:
            largest = max(largest, _largest(timestamps))
            records += found
        if found < wanted:
            break
        window *= _WINDOW_GROWTH
    return records, largest


def _layout_of(data: Data, start: int) -> _Layout:
    """The layout of a record that was checked."""
    constants: list[int] = []

    def length_at(at: int) -> tuple[int, int]:
        value, behind = decode_varint(data, at)
        constants.extend(range(at, behind))
        return value, behind

    length, at = length_at(start)
    end = at + length
    timestamp = at + 1
    _, offset = decode_varint(data, timestamp, LONG_BYTES_MAX)
    _, at = decode_varint(data, offset)
    timestamps, offsets = range(timestamp - start, offset - start), range(offset - start, at - start)
    for _ in range(2):
        length, at = length_at(at)
        at += max(length, 0)
    headers, at = length_at(at)
    for _ in range(2 * headers):
        length, at = length_at(at)
        at += max(length, 0)
    return _Layout(end - start, timestamps, offsets, tuple((at - start, data[at]) for at in constants))


def _matching(data: Data, at: int, count: int, index: int, layout: _Layout) -> tuple[int, list[Data]]:
    """How many of `count` records at `at` have the layout, and the columns of their timestamp deltas."""
    step = layout.size
    stop = at + count * step
    for distance, byte in layout.constants:
        column = data[at + distance : stop : step]
        expected = bytes((byte,)) * count
        if column != expected:
            count -= len(column.lstrip(expected[:1]))
            stop = at + count * step
    for distance, expected in zip(
        layout.offset, offset_columns(index, count, len(layout.offset)), strict=True
    ):
        column = data[at + distance : stop : step]
        count = common(column, expected)
        stop = at + count * step
    columns: list[Data] = []
    last = layout.timestamp[-1]
    for distance in layout.timestamp:
        column = data[at + distance : stop : step]
        ends = column if distance == last else column.translate(FLIPPED)
        if not ends.isascii():
            count = len(column) - len(ends.lstrip(ASCII))
            stop = at + count * step
        columns.append(column)
    return count, [column[:count] for column in columns]


def _largest(columns: Sequence[Data]) -> int:
    """The largest of the varints whose bytes are in `columns`, of which there is at least one.

    Why not `max`: in order of time the last is the largest, and to see that takes a nanosecond per record.
    """
    if columns[0].translate(None, _EVEN):
        # Some are negative.
        return max(_decoded(columns))
    zigzag, rows = 0, len(columns[0])
    for column in reversed(columns):
        # Only those rows count that have the largest bytes so far: in order of time the last ones.
        tail = bytes(column[-rows:]).translate(_WITHOUT_CONTINUATION)
        byte = tail[-1]
        rows = tail.count(byte)
        if tail.translate(None, _UP_TO[byte]) or not tail.endswith(bytes((byte,)) * rows):
            return max(_decoded(columns))
        zigzag = zigzag << 7 | byte
    return zigzag >> 1


def _decoded(columns: Sequence[Data]) -> list[int]:
    zigzags = [0] * len(columns[0])
    for number, column in enumerate(columns):
        shift = 7 * number
        zigzags = [zigzag | (byte & 0x7F) << shift for zigzag, byte in zip(zigzags, column, strict=True)]
    return [_signed(zigzag) for zigzag in zigzags]
