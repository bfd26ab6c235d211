"""Reads the segment files of a replica. Both kinds of broker store Kafka's record batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock.model.errors import CorruptMessage
from penstock.records.batch import crc_matches
from penstock.records.record import iter_batches, iter_records

__all__ = ["records_of"]


def records_of(partition: Path, read: Callable[[Path], bytes] = Path.read_bytes) -> dict[int, bytes]:
    """Returns the value of every readable record in a partition's folder, by offset.

    `read` returns the content of a file. A segment is read up to the first batch that is torn; batches with a
    wrong checksum are left out.
    """
    found: dict[int, bytes] = {}
    if not partition.is_dir():
        return found
    for segment in sorted(partition.glob("*.log")):
        if segment.is_file():
            _read_segment(read(segment), found)
    return found


def _read_segment(data: bytes, found: dict[int, bytes]) -> None:
    try:
        for position, header in iter_batches(data):
            batch = data[position : position + header.size]
            if header.is_control or not crc_matches(batch, header):
                continue
            for record in iter_records(batch):
                found[record.offset] = record.value or b""
    except CorruptMessage:
        return
