"""Lookups that the sparse indexes only narrow down: by timestamp, and of aborted transactions."""

from __future__ import annotations

from typing import NamedTuple

from penstock.records.batch import LOG_OVERHEAD
from penstock.records.header_fields import (
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
)
from penstock.records.record import timestamps
from penstock.storage.scan import read_bytes
from penstock.storage.segment import Segment
from penstock.storage.segments import Segments
from penstock.storage.transactions import AbortedTransaction

__all__ = ["DatedBatch", "TimestampOffset", "aborted_transactions", "batch_at_or_after", "latest_batch"]


class TimestampOffset(NamedTuple):
    """A record found by its timestamp."""

    timestamp: int
    offset: int
    leader_epoch: int


class DatedBatch(NamedTuple):
    """A batch whose header says that it has a record at `timestamp` or later.

    The records decide, and walking them may take long. A walk needs only these bytes.
    """

    batch: bytes
    timestamp: int
    #: records before this offset do not count
    start: int
    leader_epoch: int
    #: where to look on if no record is late enough after all
    next_offset: int

    def first(self) -> TimestampOffset | None:
        """The first record from `start` on whose timestamp is `timestamp` or later."""
        for offset, timestamp in timestamps(self.batch):
            if timestamp >= self.timestamp and offset >= self.start:
                return TimestampOffset(timestamp, offset, self.leader_epoch)
        return None

    def latest(self) -> TimestampOffset | None:
        """The first record with the largest timestamp of the batch: a header may promise a larger one."""
        found = max(timestamps(self.batch), key=lambda record: record[1], default=None)
        return None if found is None else TimestampOffset(found[1], found[0], self.leader_epoch)


def batch_at_or_after(segments: Segments, timestamp: int, start: int, cached_only: bool) -> DatedBatch | None:
    """The first batch that reaches `start` and whose largest timestamp is `timestamp` or later."""
    for segment in segments.since(start):
        if segment.max_timestamp(cached_only) >= timestamp:
            earlier_end = segment.base_offset + segment.times(cached_only).before(timestamp)
            position = segment.find(max(earlier_end + 1, start), cached_only)
            found = _first_in_segment(segment, position, timestamp, start, cached_only)
            if found is not None:
                return found
    return None


def latest_batch(segments: Segments, start: int, cached_only: bool) -> DatedBatch | None:
    """The first batch that reaches `start` and has the largest timestamp of all."""
    segment = max(segments, key=lambda candidate: candidate.max_timestamp(cached_only))
    timestamp = segment.max_timestamp(cached_only)
    if timestamp < 0:
        return None
    position = segment.find(max(segment.max_timestamp_end, start), cached_only)
    return _first_in_segment(segment, position, timestamp, start, cached_only)


def _first_in_segment(
    segment: Segment, position: int, timestamp: int, start: int, cached_only: bool
) -> DatedBatch | None:
    for at, header in segment.scan(position, cached_only):
        if header[MAX_TIMESTAMP] >= timestamp:
            batch = read_bytes(segment.open_file(), header[BATCH_LENGTH] + LOG_OVERHEAD, at, cached_only)
            return DatedBatch(
                batch,
                timestamp,
                start,
                header[LEADER_EPOCH],
                header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1,
            )
    return None


def aborted_transactions(
    segments: Segments, start: int, upper: int, cached_only: bool
) -> list[AbortedTransaction]:
    """The aborted transactions that reach into [start, upper)."""
    found: list[AbortedTransaction] = []
    for segment in segments.aborting_since(start, cached_only):
        if segment.transactions.collect(start, upper, found, cached_only):
            break
    return found
