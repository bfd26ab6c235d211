"""Filters the records of one batch for compaction.

A batch keeps its base offset, last offset, producer and sequences, whichever records are removed. So offsets
never change, and a producer's last sequence outlives its records. Records that stay are copied byte by byte.
Their timestamp deltas are rewritten only if the batch gets a delete horizon (KIP-534), because the horizon
replaces the base timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from penstock.model.errors import CorruptMessage
from penstock.ports import Buffer
from penstock.records.batch import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    BatchHeader,
)
from penstock.records.codecs import Codec, compress
from penstock.records.record import Span, open_batch, seal, walk
from penstock.records.varint import encode_varint

__all__ = ["delete_horizon_ms", "empty_batch", "filter_batch", "read_spans"]

#: No producer sends timestamps beyond this (146 million years); below it no sum of two overflows 64 bits.
_TIMESTAMP_MAX: Final = 2**62


def delete_horizon_ms(header: BatchHeader) -> int | None:
    """When the batch's tombstones, or its marker, may go; None while that has not been decided."""
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def read_spans(batch: Buffer) -> tuple[bytes, list[Span]]:
    """The batch's uncompressed records and where each of them lies; CorruptMessage if they make no sense."""
    header, data = open_batch(batch)
    spans = list(walk(data, header.record_count))
    for span in spans:
        if not 0 <= span.offset_delta <= header.last_offset_delta:
            raise CorruptMessage(f"a record at {span.offset_delta} in a batch of {header.last_offset_delta}")
        if abs(header.base_timestamp + span.timestamp_delta) > _TIMESTAMP_MAX:
            raise CorruptMessage(f"a record that is {span.timestamp_delta} ms off its batch")
    return data, spans


def filter_batch(
    batch: Buffer,
    header: BatchHeader,
    keep: Callable[[Span], bool],
    *,
    new_horizon_ms: int,
    start_horizon: bool = False,
) -> Buffer | None:
    """`batch` with the records that `keep` accepts, itself if that is all of them, None if it is none.

    A batch that keeps a tombstone, or for which `start_horizon` is set, gets `new_horizon_ms` as its delete
    horizon unless it has one.
    """
    data, spans = read_spans(batch)
    kept = [span for span in spans if keep(span)]
    if not kept:
        return None
    wants_horizon = start_horizon or any(span.value_length < 0 for span in kept)
    if wants_horizon and not header.attributes & DELETE_HORIZON_BIT:
        shift = header.base_timestamp - new_horizon_ms
        body = b"".join(_shifted(data, span, shift) for span in kept)
        header = header._replace(
            base_timestamp=new_horizon_ms,
            max_timestamp=_max_timestamp(header, kept),
            attributes=header.attributes | DELETE_HORIZON_BIT,
        )
    elif len(kept) == len(spans):
        return batch
    else:
        body = b"".join(data[span.start : span.end] for span in kept)
        header = header._replace(max_timestamp=_max_timestamp(header, kept))
    return seal(header._replace(record_count=len(kept)), compress(Codec(header.compression), body))


def _max_timestamp(header: BatchHeader, kept: list[Span]) -> int:
    if header.is_log_append_time:
        return header.max_timestamp
    return header.base_timestamp + max(span.timestamp_delta for span in kept)


def _shifted(data: bytes, span: Span, shift: int) -> bytes:
    """The record with `shift` added to its timestamp delta."""
    attributes = data[span.body : span.body + 1]
    body = attributes + encode_varint(span.timestamp_delta + shift) + data[span.offset_position : span.end]
    return encode_varint(len(body)) + body


def empty_batch(header: BatchHeader) -> bytes:
    """The batch without its records, kept for its offsets and its producer's state."""
    attributes = header.attributes & ~(COMPRESSION_MASK | DELETE_HORIZON_BIT)
    return seal(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, record_count=0), b"")
