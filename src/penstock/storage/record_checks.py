"""The check of a client's records: their compressed frame, their structure, and the configs of the topic.

`penstock.record.validation` says how far the check goes; ADR 13 has the cost of each level. The checksum is
checked before these checks run. So an error that they find was made by the client: it is an InvalidRecord,
not a CorruptMessage, which clients would retry.
"""

from __future__ import annotations

from ctypes import addressof, c_char
from threading import local
from typing import Final

from penstock.model.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    RecordListTooLarge,
    UnsupportedCompressionType,
)
from penstock.records.batch import COMPRESSION_MASK, HEADER_SIZE, NO_TIMESTAMP
from penstock.records.codec import Codec
from penstock.records.codecs import unpack
from penstock.records.frames import check_frame
from penstock.records.header_fields import ATTRIBUTES, BASE_TIMESTAMP, RECORD_COUNT
from penstock.records.record import walk
from penstock.records.structure import RUN_RECORDS_MIN, Data, TooManyRecords, check_records
from penstock.storage.rules import Rules

__all__ = ["SHORT_FRAME_BYTES_MAX", "DecompressedTooLarge", "check_batch", "check_codec", "too_large"]

_CODEC_MAX: Final = max(Codec)
_KEYLESS: Final = "a compacted topic takes no record without a key"
#: how many of a batch's bad records are named: the answer must not take longer than the check
_NAMED_MAX: Final = 1000
#: up to these sizes, compressed and not, a batch is checked by the event loop: a worker takes longer to reach
SHORT_FRAME_BYTES_MAX: Final = 8 << 10
_SHORT_RECORDS_BYTES_MAX: Final = 64 << 10
#: irregular records that the event loop checks, about a millisecond's worth
_SLOW_RECORDS_MAX: Final = 2000
#: up to this size a copy costs less than to find the buffer that a view belongs to
_COPIED_BYTES_MAX: Final = 16 << 10
#: the size of the buffer that each thread keeps: four times a large batch
_SCRATCH_BYTES_MAX: Final = 4 << 20
_TIMESTAMP_MAX: Final = (1 << 63) - 1


def check_codec(batch: memoryview, codec: int, rules: Rules | None = None) -> None:
    """Refuse an unknown codec, LZ4 frames that Java consumers cannot read, and frames that break `rules`.

    `check_batch` checks every frame by itself.
    """
    if codec > _CODEC_MAX:
        raise UnsupportedCompressionType(f"there is no codec {codec}")
    if rules is not None and rules.frames and not rules.records:
        _check_frame(batch, codec, rules.decompressed_bytes_max)
    elif codec == Codec.LZ4:
        _check_frame(batch, codec, None)


def _check_frame(batch: memoryview, codec: int, limit: int | None) -> int | None:
    """The size that the compressed frame of a batch declares for its records, if any."""
    try:
        declared = check_frame(Codec(codec), batch[HEADER_SIZE:])
    except CorruptMessage as e:
        raise InvalidRecord(str(e)) from e
    if declared is not None and limit is not None and declared > limit:
        raise too_large(limit)
    return declared


class DecompressedTooLarge(InvalidRecord):
    """The records of a batch take more bytes than its check may use."""


def too_large(limit: int) -> InvalidRecord:
    return DecompressedTooLarge(
        f"the records of a batch take more than {limit} bytes when decompressed; "
        "penstock.record.decompressed.bytes.max is the limit"
    )


def check_batch(
    batch: memoryview, header: tuple[int, ...], rules: Rules, now_ms: int, at_length: bool
) -> int:
    """Check every record of a batch; returns the largest timestamp.

    TooManyRecords unless `at_length`, if that takes longer than other requests should wait.
    """
    base_timestamp, count = header[BASE_TIMESTAMP], header[RECORD_COUNT]
    slow_max = None if at_length else _SLOW_RECORDS_MAX
    try:
        data, position, size = _records_of(
            batch, header[ATTRIBUTES] & COMPRESSION_MASK, count, rules, at_length
        )
        facts = check_records(data, position, size, count, slow_max)
    except CorruptMessage as e:
        raise InvalidRecord(str(e)) from e
    largest = base_timestamp + facts.timestamp_delta_max
    if largest > _TIMESTAMP_MAX:
        raise InvalidRecord(f"a record has timestamp {largest}, which is more than 64 bits hold")
    if (rules.compact and facts.has_null_key) or (
        not rules.log_append_time and (rules.is_bounded or largest > now_ms + rules.after_max_ms)
    ):
        if slow_max is not None and count > slow_max:
            raise TooManyRecords
        _check_each(bytes(memoryview(data)[position:size]), base_timestamp, count, rules, now_ms)
    return max(largest, NO_TIMESTAMP)


def _records_of(
    batch: memoryview, codec: int, count: int, rules: Rules, at_length: bool
) -> tuple[Data | memoryview, int, int]:
    """A buffer with the uncompressed records, and where they start and end in it."""
    if not codec:
        if count < RUN_RECORDS_MIN and len(batch) > _COPIED_BYTES_MAX:
            return batch, HEADER_SIZE, len(batch)
        data, start = _buffer_of(batch)
        return data, start + HEADER_SIZE, start + len(batch)
    limit = rules.decompressed_bytes_max
    declared = _check_frame(batch, codec, limit)
    if not at_length:
        if len(batch) > SHORT_FRAME_BYTES_MAX or (declared or 0) > _SHORT_RECORDS_BYTES_MAX:
            raise TooManyRecords
        limit = min(limit, _SHORT_RECORDS_BYTES_MAX)
    try:
        data, size = unpack(Codec(codec), batch[HEADER_SIZE:], limit, declared, _scratch.buffer)
    except RecordListTooLarge as e:
        if limit < rules.decompressed_bytes_max:
            raise TooManyRecords from e
        raise too_large(limit) from e
    if isinstance(data, bytearray) and len(_scratch.buffer) < len(data) <= _SCRATCH_BYTES_MAX:
        _scratch.buffer = data
    return data, 0, size


class _Scratch(local):
    """The buffer that a thread decompresses to: fresh memory costs as much as a fast codec."""

    def __init__(self) -> None:
        self.buffer = bytearray()


_scratch: Final = _Scratch()


def _buffer_of(view: memoryview) -> tuple[bytes | bytearray, int]:
    """The object that `view` is a part of, and where the part starts.

    Why: a step of a strided slice costs ten times more in a memoryview than in a bytearray, and a copy of a
    large batch costs more than its check.
    """
    owner = view.obj
    if len(view) <= _COPIED_BYTES_MAX or not isinstance(owner, bytearray):
        return bytes(view), 0
    return owner, addressof(c_char.from_buffer(view)) - addressof(c_char.from_buffer(owner))


def _check_each(data: bytes, base_timestamp: int, count: int, rules: Rules, now_ms: int) -> None:
    """Refuse keys and timestamps that the topic does not accept.

    Like Kafka, name every record that is refused, and have a bad timestamp decide about the code.
    """
    dated, compact = not rules.log_append_time, rules.compact
    low, high = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    errors: list[tuple[int, str]] = []
    kind: type[InvalidRecord | InvalidTimestamp] = InvalidRecord
    for index, span in enumerate(walk(data, count)):
        timestamp = base_timestamp + span.timestamp_delta
        if compact and span.key is None:
            why = _KEYLESS
        elif dated and timestamp != NO_TIMESTAMP and not low <= timestamp <= high:
            kind = InvalidTimestamp
            why = f"timestamp {timestamp} is not within [{low}, {high}]"
        else:
            continue
        if len(errors) < _NAMED_MAX:
            errors.append((index, why))
    if errors:
        message = (
            _KEYLESS if kind is InvalidRecord else "records have timestamps that the topic does not accept"
        )
        raise kind(message, tuple(errors))
