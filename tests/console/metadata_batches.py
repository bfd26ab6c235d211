"""Batches of metadata records, for tests of the timeline."""

from __future__ import annotations

from penstock.records.record import Record, build_batch
from penstock.wire.control_records import encode_control_record
from penstock.wire.metadata_records import encode_metadata_record
from penstock.wire.schema import Struct

__all__ = ["batch"]


def batch(offset: int, *records: Struct, control: bool = False, epoch: int = 3) -> bytes:
    """Records from an offset on, one second apart."""
    encoded = []
    for n, record in enumerate(records):
        key, value = encode_control_record(record) if control else (None, encode_metadata_record(record))
        encoded.append(Record(offset + n, 1000 * (offset + n), key, value))
    return build_batch(encoded, base_offset=offset, leader_epoch=epoch, control=control)
