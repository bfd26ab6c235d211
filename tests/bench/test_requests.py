"""The raw frames that the request row sends, read back by our own decoder and kafka-python's."""

from __future__ import annotations

import struct

from kafka.record.memory_records import MemoryRecords

from bench.requests import RECORD, produce_frame, record_batch
from penstock.records.batch import crc_matches, read_header


def test_the_batch_is_one_valid_record() -> None:
    batch = record_batch(RECORD)
    header = read_header(batch)
    assert header.size == len(batch)
    assert crc_matches(batch, header)
    (read,) = MemoryRecords(batch)
    assert [(record.key, record.value) for record in read] == [(None, RECORD)]


def test_the_frame_carries_its_own_length() -> None:
    frame = produce_frame("topic", 3, b"batch")
    (length,) = struct.unpack_from(">i", frame)
    assert length == len(frame) - 4
    assert frame.endswith(struct.pack(">ii", 3, 5) + b"batch")
