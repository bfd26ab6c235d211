"""A batch of values without keys, as the metadata log has them, built in slices.

The bytes are those of `record.build_batch`. A change of the metadata is one batch, however many partitions it
has: only whole batches are committed and applied.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from penstock.model.steps import Steps, is_slice_over
from penstock.records.batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
)
from penstock.records.checksum import crc32c
from penstock.records.varint import encode_varint

__all__ = ["value_batch"]

_CRC: Final = Struct(">I")
_CRC_POSITION: Final = CRC_START - _CRC.size


def value_batch(values: Iterable[bytes], timestamp: int) -> Steps[bytearray]:
    """A batch of at least one value: uncompressed, without a producer, all with one timestamp."""
    batch = bytearray(HEADER_SIZE)
    count = 0
    for value in values:
        # attributes and timestamp delta, offset delta, no key, value, no headers
        body = b"\x00\x00" + encode_varint(count) + b"\x01" + encode_varint(len(value)) + value + b"\x00"
        batch += encode_varint(len(body)) + body
        count += 1
        if is_slice_over(count):
            yield
    if not count:
        raise ValueError("a batch needs a record")
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
    return batch
