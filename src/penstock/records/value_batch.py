"""A batch of values without keys, as the metadata log has them, built in slices.

The bytes are those of `record.build_batch`. A change of the metadata is one batch, however many partitions it
has: only whole batches are committed and applied.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.steps import Steps, is_slice_over
from penstock.records.batch import HEADER_SIZE
from penstock.records.record import write_plain_header
from penstock.records.varint import encode_varint

__all__ = ["value_batch"]


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
    write_plain_header(batch, count, timestamp)
    return batch
