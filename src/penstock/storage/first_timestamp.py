"""The first timestamp of a segment, which time-based rolling counts from."""

from __future__ import annotations

from typing import Final

from penstock.records.batch import LOG_OVERHEAD, crc_matches, read_header
from penstock.records.header_fields import BATCH_LENGTH, MAX_TIMESTAMP
from penstock.storage.segment import Segment

__all__ = ["checked_first_timestamp"]

#: the largest first batch that is checked before its timestamp is used
_CHECKED_BYTES_MAX: Final = 1 << 20


def checked_first_timestamp(segment: Segment) -> int | None:
    """The largest timestamp of the first batch of a segment that has batches; None if it is damaged.

    A disk error may have moved the timestamp into the future. Batches of more than 1 MiB are not checked.
    """
    position, header = next(segment.scan(0))
    size = header[BATCH_LENGTH] + LOG_OVERHEAD
    if size <= _CHECKED_BYTES_MAX:
        batch = segment.open_file().pread(size, position)
        if len(batch) < size or not crc_matches(batch, read_header(batch)):
            return None
    return header[MAX_TIMESTAMP]
