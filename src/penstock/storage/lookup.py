"""Questions that the sparse indexes only narrow down: by timestamp, and about aborted transactions."""

from __future__ import annotations

from typing import NamedTuple

from penstock.records.batch import LOG_OVERHEAD
from penstock.records.record import iter_records
from penstock.storage.scan import read_bytes
from penstock.storage.segment import Segment
from penstock.storage.segments import Segments
from penstock.storage.transactions import AbortedTransaction

__all__ = ["TimestampOffset", "aborted_transactions", "latest_record", "record_at_or_after"]


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


def record_at_or_after(
    segments: Segments, timestamp: int, log_start: int, cached_only: bool
) -> TimestampOffset | None:
    """The first record from `log_start` on whose timestamp is `timestamp` or later."""
    for segment in segments.since(log_start):
        if segment.max_timestamp(cached_only) >= timestamp:
            found = _first_in_segment(segment, timestamp, log_start, cached_only)
            if found is not None:
                return found
    return None


def _first_in_segment(
    segment: Segment, timestamp: int, log_start: int, cached_only: bool
) -> TimestampOffset | None:
    start = max(segment.base_offset + segment.times(cached_only).before(timestamp) + 1, log_start)
    for position, header in segment.scan(segment.find(start, cached_only), cached_only):
        if header[8] < timestamp:
            continue
        batch = read_bytes(segment.open_file(), header[1] + LOG_OVERHEAD, position, cached_only)
        for record in iter_records(batch):
            if record.timestamp >= timestamp and record.offset >= log_start:
                return TimestampOffset(record.timestamp, record.offset, header[2])
    return None


def latest_record(segments: Segments, cached_only: bool) -> TimestampOffset | None:
    """The first record that has the largest timestamp of all."""
    segment = max(segments, key=lambda candidate: candidate.max_timestamp(cached_only))
    timestamp = segment.max_timestamp(cached_only)
    if timestamp < 0:
        return None
    position = segment.find(segment.max_timestamp_end, cached_only)
    for at, header in segment.scan(position, cached_only):
        if header[8] == timestamp:
            batch = read_bytes(segment.open_file(), header[1] + LOG_OVERHEAD, at, cached_only)
            for record in iter_records(batch):
                if record.timestamp == timestamp:
                    return TimestampOffset(timestamp, record.offset, header[2])
    return None


def aborted_transactions(segments: Segments, start: int, upper: int) -> list[AbortedTransaction]:
    """The aborted transactions that reach into [start, upper)."""
    found: list[AbortedTransaction] = []
    for segment in segments.aborting_since(start):
        if segment.transactions.collect(start, upper, found):
            break
    return found
