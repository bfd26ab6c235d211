"""The records inside a batch: reading them, building batches of them, and changing a batch's codec.

Only `build_keyed_batch` runs on the broker's hot path. Invalid bytes of a batch raise CorruptMessage. The
caller checks the checksum (`batch.crc_matches`). A record's offset and timestamp are stored as distances from
the batch's, so a record's bytes mean nothing outside their batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from struct import Struct, error
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from penstock.records.checksum import crc32c
from penstock.records.codecs import DECOMPRESSED_BYTES_MAX, Codec, compress, decompress
from penstock.records.structure import check_records
from penstock.records.varint import LONG_BYTES_MAX, decode_varint, encode_varint

__all__ = [
    "Header",
    "Record",
    "Span",
    "build_batch",
    "build_keyed_batch",
    "iter_batches",
    "iter_records",
    "open_batch",
    "recompress",
    "seal",
    "timestamps",
    "walk",
    "write_plain_header",
]

Header: TypeAlias = tuple[str, bytes | None]
_TIMESTAMP_MAX: Final = (1 << 63) - 1
_CRC: Final = Struct(">I")
_CRC_POSITION: Final = CRC_START - _CRC.size


class Record(NamedTuple):
    """One record as a client sees it. A None value is a tombstone in a compacted topic."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


class Span(NamedTuple):
    """Where one record lies in its batch's uncompressed bytes, and what compaction needs to know of it."""

    start: int
    #: behind the length, where the record's attributes stand, followed by its timestamp delta
    body: int
    timestamp_delta: int
    #: where the offset delta stands: from here to `end` nothing depends on the batch's timestamp
    offset_position: int
    offset_delta: int
    key: bytes | None
    value_position: int
    #: -1 for a null value
    value_length: int
    end: int


def iter_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each complete batch; a batch that `buffer` cuts short ends it."""
    view = memoryview(buffer)
    position = 0
    while position + HEADER_SIZE <= len(view):
        header = read_header(view, position)
        if header.magic != MAGIC or header.size < HEADER_SIZE:
            raise CorruptMessage(f"at byte {position}: a batch of magic {header.magic}, {header.size} bytes")
        if position + header.size > len(view):
            return
        yield position, header
        position += header.size


def open_batch(batch: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> tuple[BatchHeader, bytes]:
    """The header and the uncompressed records of `batch`, which must be exactly one batch."""
    try:
        header = read_header(batch)
    except error as e:
        raise CorruptMessage(f"{len(batch)} bytes are too few for a batch") from e
    if header.magic != MAGIC or header.size != len(batch) or header.record_count < 0:
        raise CorruptMessage(
            f"a batch of magic {header.magic} with {header.record_count} records and a declared size of "
            f"{header.size} bytes, in {len(batch)} bytes"
        )
    if header.size == HEADER_SIZE:
        # compaction leaves such batches behind; even a codec writes more than nothing otherwise
        return header, b""
    try:
        codec = Codec(header.compression)
    except ValueError as e:
        raise CorruptMessage(f"unknown codec {header.compression}") from e
    return header, decompress(codec, memoryview(batch)[HEADER_SIZE:], limit)


def walk(data: bytes, count: int) -> Iterator[Span]:
    """The `count` records that `data`, a batch's uncompressed records, must consist of exactly."""
    position = 0
    size = len(data)
    try:
        for _ in range(count):
            start = position
            length, body = decode_varint(data, start)
            end = body + length
            timestamp_delta, offset_position = decode_varint(data, body + 1, LONG_BYTES_MAX)
            offset_delta, position = decode_varint(data, offset_position)
            key_length, position = decode_varint(data, position)
            key = None
            if key_length >= 0:
                key = data[position : position + key_length]
                position += key_length
            value_length, position = decode_varint(data, position)
            # behind the value stands at least the number of headers
            if length < 0 or end > size or position + max(value_length, 0) >= end:
                raise CorruptMessage(f"a record of {length} bytes at byte {start} of {size}")
            yield Span(
                start, body, timestamp_delta, offset_position, offset_delta, key, position, value_length, end
            )
            position = end
    except IndexError as e:
        raise CorruptMessage(f"{count} records end within their {size} bytes") from e
    if position != size:
        raise CorruptMessage(f"{size - position} bytes are left behind {count} records")


def iter_records(batch: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
    """The records of exactly one batch, in whatever codec, unpacking to no more than `limit` bytes."""
    header, data = open_batch(batch, limit)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for span in walk(data, header.record_count):
        value = None
        position = span.value_position
        if span.value_length >= 0:
            value = data[position : position + span.value_length]
            position += span.value_length
        yield Record(
            base_offset + span.offset_delta,
            append_time if append_time is not None else base_timestamp + span.timestamp_delta,
            span.key,
            value,
            () if data[position] == 0 and position + 1 == span.end else _headers(data, position, span.end),
        )


def timestamps(batch: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[tuple[int, int]]:
    """(offset, timestamp) of the records of exactly one batch."""
    header, data = open_batch(batch, limit)
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for span in walk(data, header.record_count):
        yield (
            base_offset + span.offset_delta,
            append_time if append_time is not None else base_timestamp + span.timestamp_delta,
        )


def _headers(data: bytes, position: int, end: int) -> tuple[Header, ...]:
    headers: list[Header] = []
    try:
        count, position = decode_varint(data, position)
        if count < 0:
            raise CorruptMessage(f"a record with {count} headers")
        for _ in range(count):
            length, position = decode_varint(data, position)
            if length < 0:
                raise CorruptMessage("a header without a key")
            # like Java, show what is not UTF-8 rather than fail: clients may send any bytes
            key = data[position : position + length].decode(errors="replace")
            position += length
            length, position = decode_varint(data, position)
            value = None
            if length >= 0:
                value = data[position : position + length]
                position += length
            headers.append((key, value))
            if position > end:
                break
    except IndexError as e:
        raise CorruptMessage("a record's headers are cut short") from e
    if position != end:
        raise CorruptMessage(f"a record's headers end {position - end} bytes off its end")
    return tuple(headers)


def seal(header: BatchHeader, body: Buffer) -> bytes:
    """The batch of `header` and `body` (records compressed as it says), with length and checksum set."""
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    batch = bytearray(HEADER.pack(*header._replace(batch_length=length, magic=MAGIC, crc=0)))
    batch += body
    crc = crc32c(memoryview(batch)[CRC_START:])
    batch[CRC_START - 4 : CRC_START] = crc.to_bytes(4, "big")
    return bytes(batch)


def build_batch(
    records: Iterable[Record],
    *,
    codec: Codec = Codec.NONE,
    level: int | None = None,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    log_append_time: bool = False,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """A batch of at least one record; the records' offsets rise from `base_offset` or later."""
    records = list(records)
    if not records:
        raise ValueError("a batch needs a record")
    base_timestamp = records[0].timestamp
    body = b"".join(_encode(record, base_offset, base_timestamp) for record in records)
    attributes = codec | TIMESTAMP_TYPE_BIT * log_append_time
    attributes |= TRANSACTIONAL_BIT * transactional | CONTROL_BIT * control
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return seal(header, compress(codec, body, level))


def build_keyed_batch(records: Sequence[tuple[bytes, bytes | None]], timestamp: int) -> bytearray:
    """A batch of at least one key and value: uncompressed, without a producer, all with one timestamp.

    The bytes are those of `build_batch`. Why: a coordinator builds such a batch for each committed offset.
    """
    batch = bytearray(HEADER_SIZE)
    for index, (key, value) in enumerate(records):
        # attributes and timestamp delta, offset delta, key
        body = b"\x00\x00" + encode_varint(index) + encode_varint(len(key)) + key
        # value, number of headers
        body += b"\x01\x00" if value is None else encode_varint(len(value)) + value + b"\x00"
        batch += encode_varint(len(body)) + body
    write_plain_header(batch, len(records), timestamp)
    return batch


def write_plain_header(batch: bytearray, count: int, timestamp: int) -> None:
    """The header of `count` uncompressed records of no producer, which are in `batch` behind its place."""
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - LOG_OVERHEAD,
        NO_EPOCH,
        MAGIC,
        0,
        0,
        count - 1,
        timestamp,
        timestamp,
        NO_PRODUCER_ID,
        NO_EPOCH,
        NO_SEQUENCE,
        count,
    )
    _CRC.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))


def _encode(record: Record, base_offset: int, base_timestamp: int) -> bytes:
    offset, timestamp, key, value, headers = record
    parts = [b"\x00", encode_varint(timestamp - base_timestamp), encode_varint(offset - base_offset)]
    _encode_bytes(parts, key)
    _encode_bytes(parts, value)
    parts.append(encode_varint(len(headers)))
    for name, content in headers:
        _encode_bytes(parts, name.encode())
        _encode_bytes(parts, content)
    body = b"".join(parts)
    return encode_varint(len(body)) + body


def _encode_bytes(parts: list[bytes], content: bytes | None) -> None:
    if content is None:
        parts.append(b"\x01")
    else:
        parts += (encode_varint(len(content)), content)


def recompress(
    batch: Buffer, codec: Codec, level: int | None = None, limit: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """A producer's records in another codec, numbered from 0; control batches stay as they are.

    The header gets the true maximum timestamp. As in Kafka, offset deltas of the producer are not believed.
    Every record of the result is valid; CorruptMessage where that cannot be.
    """
    header, data = open_batch(batch, limit)
    if header.is_control or header.compression == codec:
        return bytes(batch)
    try:
        facts = check_records(data, 0, len(data), header.record_count)
    except CorruptMessage:
        # Perhaps it is only the offset deltas that are wrong.
        spans = walk(data, header.record_count)
        data = b"".join(_numbered(data, span, index) for index, span in enumerate(spans))
        facts = check_records(data, 0, len(data), header.record_count)
    attributes = header.attributes & ~COMPRESSION_MASK | codec
    if header.record_count and not header.is_log_append_time:
        largest = header.base_timestamp + facts.timestamp_delta_max
        if largest > _TIMESTAMP_MAX:
            raise CorruptMessage(f"a record has timestamp {largest}, which does not fit into 64 bits")
        header = header._replace(max_timestamp=max(largest, NO_TIMESTAMP))
    return seal(header._replace(attributes=attributes), compress(codec, data, level))


def _numbered(data: bytes, span: Span, offset_delta: int) -> bytes:
    """The bytes of a record with another offset delta."""
    _, behind = decode_varint(data, span.offset_position)
    body = data[span.body : span.offset_position] + encode_varint(offset_delta) + data[behind : span.end]
    return encode_varint(len(body)) + body
