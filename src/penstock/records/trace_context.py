"""Finds the trace context of a client in the headers of the first record of a batch (W3C `traceparent`).

For spans of a few requests per second only: brokers do not read records otherwise. The work is bounded. Of a
batch that is not compressed, the first record is read; of a compressed one, which must be small, all of it.
"""

from __future__ import annotations

from typing import Final

from penstock.model.errors import PenstockError
from penstock.records.batch import HEADER_SIZE, MAGIC, read_header
from penstock.records.record import open_batch
from penstock.records.varint import LONG_BYTES_MAX, decode_varint

__all__ = ["SEARCHED_BYTES_MAX", "first_traceparent"]

#: the bytes of a batch that are looked at
SEARCHED_BYTES_MAX: Final = 64 << 10
_DECOMPRESSED_MAX: Final = 1 << 20
_HEADERS_MAX: Final = 64
_NAME: Final = b"traceparent"
_VALUE_MAX: Final = 256


def first_traceparent(batch: bytes) -> bytes | None:
    """The header `traceparent` of the first record; None if there is none within the limits.

    `batch` are the first bytes of a batch, or all of it.
    """
    if len(batch) <= HEADER_SIZE:
        return None
    header = read_header(batch)
    if header.magic != MAGIC or header.is_control or header.record_count < 1:
        return None
    if not header.compression:
        return _in_first_record(bytes(batch[HEADER_SIZE:SEARCHED_BYTES_MAX]))
    if header.size != len(batch) or header.size > SEARCHED_BYTES_MAX:
        return None
    try:
        return _in_first_record(open_batch(batch, _DECOMPRESSED_MAX)[1])
    except PenstockError:
        return None


def _in_first_record(data: bytes) -> bytes | None:
    try:
        _, position = decode_varint(data, 0)
        # the attributes of the record, then both deltas
        _, position = decode_varint(data, position + 1, LONG_BYTES_MAX)
        _, position = decode_varint(data, position)
        for _ in ("key", "value"):
            length, position = decode_varint(data, position)
            position += max(0, length)
        count, position = decode_varint(data, position)
        for _ in range(min(count, _HEADERS_MAX)):
            length, position = decode_varint(data, position)
            name, position = data[position : position + length], position + max(0, length)
            length, position = decode_varint(data, position)
            if name == _NAME:
                value = data[position : position + length]
                return value if 0 < length <= _VALUE_MAX and len(value) == length else None
            position += max(0, length)
    except (IndexError, PenstockError):
        # The record, or its header, is larger than what is looked at. Or the bytes are no record.
        return None
    return None
