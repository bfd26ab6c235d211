"""Checks batches before an append, by header and checksum, and stamps them with the append time.

`penstock.record.validation` decides how far the records of a client's batch are checked. Below the level
`records` they are checked in two cases only: the topic has a rule that headers cannot show (keys in compacted
topics, the greatest age of a timestamp), or the header's timestamps cannot be right. If records are checked,
the header gets the true maximum timestamp, as in Kafka. CorruptMessage, which clients retry, is raised only
for damage that may have happened on the network.
"""

from __future__ import annotations

from copy import copy
from struct import Struct, error
from typing import Final

from penstock.model.errors import (
    ApiError,
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    PenstockError,
)
from penstock.ports import Buffer
from penstock.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
)
from penstock.records.checksum import crc32c
from penstock.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_SEQUENCE,
    BATCH_LENGTH,
    CRC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC_BYTE,
    RECORD_COUNT,
)
from penstock.records.structure import TooManyRecords, is_plain_record
from penstock.storage.producers import AppendOrigin
from penstock.storage.record_checks import SHORT_FRAME_BYTES_MAX, check_batch, check_codec
from penstock.storage.rules import Rules, rules_of, rules_without_clock

__all__ = [
    "LongWalk",
    "NotOneBatch",
    "Rules",
    "check_codec",
    "check_replicated",
    "one_batch",
    "rules_of",
    "rules_without_clock",
    "validate",
]

_CLIENT: Final = AppendOrigin.CLIENT
_LENGTH: Final = Struct(">i")
_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
#: the length field of the shortest message of any format
_LENGTH_MIN: Final = 14
_CRC: Final = Struct(">I")
_ATTRIBUTES: Final = Struct(">h")
_MAX_TIMESTAMP: Final = Struct(">q")
_CRC_POSITION: Final = 17
_ATTRIBUTES_POSITION: Final = 21
_MAX_TIMESTAMP_POSITION: Final = 35
#: a batch from a client has no business with these
_FORBIDDEN: Final = CONTROL_BIT | TIMESTAMP_TYPE_BIT


class NotOneBatch(InvalidRecord):
    """A client sent no batch, a piece of one, several, or one in an old format: no partition takes that."""


class LongWalk(PenstockError):
    """A client's batch has to be walked, which takes long: `check` it in a worker thread, then append it."""

    def __init__(self, batch: memoryview, rules: Rules, now_ms: int) -> None:
        super().__init__(f"a batch of {len(batch)} bytes has to be walked")
        self.rules = rules
        self._batch = batch
        self._now_ms = now_ms

    def check(self, memory_max: int | None = None) -> None:
        """Raise the error that the append would; else the batch meets `rules` and has a corrected header.

        With `memory_max`, records that take more bytes when decompressed are a DecompressedTooLarge.
        """
        rules = self.rules
        if memory_max is not None and memory_max < rules.decompressed_bytes_max:
            rules = copy(rules)
            rules.decompressed_bytes_max = memory_max
        validate(self._batch, rules, _CLIENT, self._now_ms, at_length=True)


def validate(
    batches: memoryview,
    rules: Rules,
    origin: AppendOrigin,
    now_ms: int,
    checked_by: Rules | None = None,
    at_length: bool = False,
) -> list[tuple[int, ...]]:
    """The header fields of each of `batches`, all of which may enter the log; raises an ApiError otherwise.

    Where the topic says so, batches get the append time: attributes, largest timestamp and checksum change.
    A batch that meets the rules of `checked_by` is not checked again for these, its checksum included. Bytes
    that `one_batch` leaves out have no header in the result. A client's batch whose check would take long is
    a LongWalk, unless `at_length`. With `at_length`, batches do not get the append time: the append sets it.

    Longer than other functions because this is the hot path: it has every check that all batches need.
    """
    size = len(batches)
    client = origin is _CLIENT
    max_timestamp_max = now_ms + rules.ahead_max_ms
    headers: list[tuple[int, ...]] = []
    position = 0
    while True:
        try:
            header = HEADER.unpack_from(batches, position)
        except error:
            raise _malformed(batches, position, client) from None
        (
            base_offset,
            length,
            _,
            magic,
            crc,
            attributes,
            delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            _,
            sequence,
            count,
        ) = header
        end = position + length + LOG_OVERHEAD
        if magic != MAGIC or length < HEADER_SIZE - LOG_OVERHEAD or end > size:
            raise _malformed(batches, position, client)
        if end - position > rules.message_bytes_max:
            raise MessageTooLarge(
                f"a batch of {end - position} bytes; max.message.bytes is {rules.message_bytes_max}"
            )
        if (
            attributes & COMPRESSION_MASK
            and length > SHORT_FRAME_BYTES_MAX
            and not (checked_by is rules or at_length)
            and client
            and rules.records
        ):
            # The worker checks everything, the checksum included.
            raise LongWalk(batches, rules, now_ms)
        if checked_by is not rules and crc32c(batches[position + CRC_START : end]) != crc:
            raise CorruptMessage("a batch's checksum does not match its content")
        if client and (
            base_offset
            or delta + 1 != count
            or delta < 0
            or sequence < 0 <= producer_id
            or attributes & _FORBIDDEN
            or end != size
        ):
            if end != size:
                return validate(one_batch(batches), rules, origin, now_ms, checked_by, at_length)
            raise _refusal(header)
        if attributes and attributes & COMPRESSION_MASK:
            check_codec(batches[position:end], attributes & COMPRESSION_MASK, rules if client else None)
        if max_timestamp > max_timestamp_max or (
            checked_by is not rules
            and (
                (
                    client
                    and rules.records
                    and (
                        delta
                        or attributes & COMPRESSION_MASK
                        or not is_plain_record(batches, HEADER_SIZE, size)
                    )
                )
                or rules.walk
                # No record can be later than the only one, or earlier than all.
                or (max_timestamp != base_timestamp and (not delta or max_timestamp < base_timestamp))
            )
        ):
            try:
                largest = check_batch(batches[position:end], header, rules, now_ms, at_length or not client)
            except TooManyRecords:
                raise LongWalk(batches, rules, now_ms) from None
            if largest != max_timestamp:
                header = _stamp_max_timestamp(batches, position, end, header, largest)
        if rules.log_append_time and not at_length:
            header = _stamp_append_time(batches, position, end, header, now_ms)
        headers.append(header)
        if end == size:
            return headers
        position = end


def check_replicated(batches: Buffer, newest_epoch: int | None = None) -> list[tuple[int, ...]]:
    """The header fields of batches that a leader has validated: only damage on the way is looked for.

    With `newest_epoch` these are the whole batches up to the first that was written in a later epoch: the
    leader may have been deposed, cut and refilled between reading the epoch and reading the log.
    """
    view = memoryview(batches)
    headers: list[tuple[int, ...]] = []
    position, size = 0, len(view)
    while position < size:
        try:
            header = HEADER.unpack_from(view, position)
        except error:
            if newest_epoch is not None:
                break
            raise _malformed(view, position, client=False) from None
        end = position + header[BATCH_LENGTH] + LOG_OVERHEAD
        if newest_epoch is not None and (
            header[LEADER_EPOCH] > newest_epoch or not position + HEADER_SIZE <= end <= size
        ):
            break
        if header[MAGIC_BYTE] != MAGIC or end < position + HEADER_SIZE or end > size:
            raise _malformed(view, position, client=False)
        if crc32c(view[position + CRC_START : end]) != header[CRC]:
            raise CorruptMessage("a batch's checksum does not match its content")
        headers.append(header)
        position = end
    return headers


def one_batch(batches: memoryview) -> memoryview:
    """The batch that a client may send to a partition at a time; a piece of one behind it is left out."""
    size = _whole_size(batches, 0)
    if size is None:
        raise NotOneBatch(f"{len(batches)} bytes that are not a whole batch")
    magic = batches[_MAGIC_POSITION]
    if magic < MAGIC:
        raise NotOneBatch(f"message format {magic} is too old, {MAGIC} is needed")
    if size < HEADER_SIZE:
        raise CorruptMessage(f"a batch of {size} bytes, which is less than its header")
    if _whole_size(batches, size) is not None:
        raise NotOneBatch("a client may append exactly one batch to a partition at a time")
    return batches[:size]


def _whole_size(batches: memoryview, position: int) -> int | None:
    """The size of the batch at `position`, of any format; None if not all of it is there."""
    left = len(batches) - position
    if left < LOG_OVERHEAD:
        return None
    (length,) = _LENGTH.unpack_from(batches, position + _LENGTH_POSITION)
    if length < _LENGTH_MIN:
        raise CorruptMessage(f"no batch is {length} bytes long")
    if left <= _MAGIC_POSITION:
        return None
    if batches[position + _MAGIC_POSITION] > MAGIC:
        raise CorruptMessage(f"there is no message format {batches[position + _MAGIC_POSITION]}")
    size: int = length + LOG_OVERHEAD
    return size if size <= left else None


def _malformed(batches: memoryview, position: int, client: bool) -> ApiError:
    """The error for bytes at `position` that are not a batch of format version 2."""
    if client:
        try:
            one_batch(batches)
        except ApiError as e:
            return e
    return CorruptMessage(f"{len(batches) - position} bytes that are not a whole batch")


def _refusal(header: tuple[int, ...]) -> ApiError:
    """Why a well-formed batch may not come from a client."""
    base_offset, delta, count, attributes, sequence = (
        header[BASE_OFFSET],
        header[LAST_OFFSET_DELTA],
        header[RECORD_COUNT],
        header[ATTRIBUTES],
        header[BASE_SEQUENCE],
    )
    if base_offset != 0:
        return InvalidRecord(f"the base offset of a batch to append is {base_offset}, it has to be 0")
    if count <= 0 or delta + 1 != count:
        return InvalidRecord(f"a batch of {count} records whose last offset delta is {delta}")
    if attributes & CONTROL_BIT:
        return InvalidRecord("clients may not write control records")
    if attributes & TIMESTAMP_TYPE_BIT:
        return InvalidTimestamp("a producer may not set the timestamp type to LogAppendTime")
    return InvalidRecord(f"a batch with a producer id has sequence {sequence}")


def _stamp_append_time(
    batches: memoryview, position: int, end: int, header: tuple[int, ...], now_ms: int
) -> tuple[int, ...]:
    attributes = header[ATTRIBUTES] | TIMESTAMP_TYPE_BIT
    _ATTRIBUTES.pack_into(batches, position + _ATTRIBUTES_POSITION, attributes)
    header = (*header[:5], attributes, *header[6:])
    return _stamp_max_timestamp(batches, position, end, header, now_ms)


def _stamp_max_timestamp(
    batches: memoryview, position: int, end: int, header: tuple[int, ...], max_timestamp: int
) -> tuple[int, ...]:
    _MAX_TIMESTAMP.pack_into(batches, position + _MAX_TIMESTAMP_POSITION, max_timestamp)
    crc = crc32c(batches[position + CRC_START : end])
    _CRC.pack_into(batches, position + _CRC_POSITION, crc)
    return (*header[:4], crc, *header[5:8], max_timestamp, *header[9:])
