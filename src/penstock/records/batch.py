"""The header of a record batch, and how batches lie one behind the other.

A batch is 61 bytes of header and then its records, compressed as a whole or not at all. The checksum covers
everything behind itself (attributes to the end), so offset and leader epoch can be stamped in place.
Positions count bytes from the start of the buffer that was passed.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from penstock.ports import Buffer
from penstock.records.checksum import crc32c

MAGIC: Final = 2
HEADER_SIZE: Final = 61
#: offset and length: what precedes the bytes that `batch_length` counts
LOG_OVERHEAD: Final = 12
#: where the checksummed part starts
CRC_START: Final = 21

#: the byte of the attributes that has the codec
ATTRIBUTES_LOW: Final = 22
COMPRESSION_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1

HEADER: Final = Struct(">qiibIhiqqqhii")
_OFFSET_AND_LENGTH: Final = Struct(">qi")
_STAMP: Final = Struct(">qii")
_OFFSET: Final = Struct(">q")
_RECORD_COUNT: Final = Struct(">57xi")
_CRC: Final = Struct(">I")
_TIMESTAMPS: Final = Struct(">qq")
_TIMESTAMPS_POSITION: Final = 27
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_POSITION: Final = 43
#: what may be walked record by record while others wait: a few milliseconds' worth
_SHORT_RECORDS_MAX: Final = 1000
_SHORT_BYTES_MAX: Final = 64 << 10


class BatchHeader(NamedTuple):
    """The fields of a header, in wire order."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & COMPRESSION_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & TIMESTAMP_TYPE_BIT)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2³¹-1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; `struct.error` if fewer than 61 bytes are left."""
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def read_offset_and_length(buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """(base offset, bytes of the whole batch) at `position`: enough to step to the next batch."""
    offset, length = _OFFSET_AND_LENGTH.unpack_from(buffer, position)
    return offset, length + LOG_OVERHEAD


def codec_of(batch: Buffer) -> int:
    """The number of the batch's codec; 0 (none) for bytes that are too short for a batch."""
    return batch[ATTRIBUTES_LOW] & COMPRESSION_MASK if len(batch) >= HEADER_SIZE else 0


def is_long(batch: Buffer) -> bool:
    """Whether a loop over the batch's records could delay others; true for any compressed batch."""
    if len(batch) < HEADER_SIZE:
        return False
    if len(batch) > _SHORT_BYTES_MAX or batch[ATTRIBUTES_LOW] & COMPRESSION_MASK:
        return True
    return bool(_RECORD_COUNT.unpack_from(batch)[0] > _SHORT_RECORDS_MAX)


def crc_matches(batch: Buffer, header: BatchHeader) -> bool:
    """Returns true if the checksum of `batch`, exactly one batch, is right."""
    return bool(crc32c(memoryview(batch)[CRC_START:]) == header.crc)


def stamp_time(batch: memoryview, timestamp_ms: int) -> None:
    """Give all records of exactly one batch, which were made at the same time, another one."""
    _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_POSITION, timestamp_ms, timestamp_ms)
    _CRC.pack_into(batch, CRC_START - _CRC.size, crc32c(batch[CRC_START:]))


def set_producer(batch: memoryview, producer_id: int, epoch: int, sequence: int) -> None:
    """Give exactly one batch another producer."""
    _PRODUCER.pack_into(batch, _PRODUCER_POSITION, producer_id, epoch, sequence)
    _CRC.pack_into(batch, CRC_START - _CRC.size, crc32c(batch[CRC_START:]))


def stamp(batch: bytearray | memoryview, position: int, base_offset: int, leader_epoch: int) -> None:
    """Give the batch at `position` its place in the log; the checksum does not cover these fields."""
    length = _OFFSET_AND_LENGTH.unpack_from(batch, position)[1]
    _STAMP.pack_into(batch, position, base_offset, length, leader_epoch)
