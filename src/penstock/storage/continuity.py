"""Segment continuity: each segment of a log has to begin where the one before it ends.

Appends, truncation and retention keep a log contiguous, so offsets that are missing between two segments were
lost with a file: a segment was removed, truncated, renamed, or replaced by an older copy. The offsets are
reported as damage. A reader of them gets CORRUPT_MESSAGE and never skips to the segment behind the hole.

Cost: one index entry and one or two batch headers are read for each sealed segment.

Compaction leaves offsets out, so where a compacted segment ends cannot be read from its batches. Its marker
file records it (`Segment.coverage`). The empty markers of release 0.1.0 record nothing: behind such a segment
a missing one is not noticed before the segment is compacted again.

Two kinds of damage are detected elsewhere. `scrub` finds bytes that changed while the file kept its size. The
recovery point and the manifest of a clean shutdown show that a last segment is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from penstock.ports import Files
from penstock.records.batch import HEADER, HEADER_SIZE, LOG_OVERHEAD
from penstock.records.header_fields import BASE_OFFSET, BATCH_LENGTH, LAST_OFFSET_DELTA
from penstock.storage.batch_search import whole_batches
from penstock.storage.index import OFFSET_ENTRY_BYTES, IndexDamaged, OffsetIndex
from penstock.storage.index_files import read_last_entry
from penstock.storage.recovery_report import Corruption
from penstock.storage.scan import CorruptLog, plausible, scan
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, OFFSET_INDEX

__all__ = ["MISPLACED", "SoundEnd", "find_holes", "last_indexed", "set_misplaced_aside", "sound_end"]

#: appended to the name of a segment file whose batches do not belong at the offset that it is named after
MISPLACED: Final = ".misplaced"


class SoundEnd(NamedTuple):
    """The end offset of the batches of a segment, by their headers."""

    next_offset: int
    position: int


def last_indexed(segment: Segment) -> int:
    """The position of the last indexed batch of `segment`; 0 if the index is empty."""
    entry = read_last_entry(segment.files, segment.path(OFFSET_INDEX), OFFSET_ENTRY_BYTES, cached_only=False)
    try:
        last = OffsetIndex.decode(entry, segment.size)
    except IndexDamaged:
        return 0
    return last.positions[0] if last.positions else 0


def sound_end(segment: Segment) -> SoundEnd:
    """Walk the headers behind the last index entry; all of them if that does not lead to the file's end."""
    start = last_indexed(segment)
    end = _walk(segment, start)
    if start and end.position < segment.size:
        end = _walk(segment, 0)
    segment.release()
    return end


def _walk(segment: Segment, position: int) -> SoundEnd:
    next_offset = segment.base_offset
    try:
        for start, header in scan(segment.open_file(), position, segment.size):
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            position = start + header[BATCH_LENGTH] + LOG_OVERHEAD
    except CorruptLog:
        pass
    return SoundEnd(next_offset, position)


def find_holes(segments: Sequence[Segment]) -> list[Corruption]:
    """The offsets that are missing between `segments`, which follow each other; changes no file.

    Bytes behind the last whole batch of a truncated segment do not count as part of it.
    """
    holes = []
    for segment, following in pairwise(segments):
        first = _end_of(segment, following.base_offset)
        if first < following.base_offset:
            holes.append(Corruption(segment.path(LOG), segment.size, 0, first, following.base_offset))
    return holes


def _end_of(segment: Segment, following_base: int) -> int:
    """The offset up to which a sealed segment holds, or rightly leaves out, everything."""
    if not segment.is_compacted:
        end = sound_end(segment)
        # Bytes behind the last offset that belongs here are damaged in place: `scrub` has to see them.
        if end.next_offset < following_base:
            segment.size = end.position
        return end.next_offset
    coverage = segment.coverage()
    if coverage is None:
        return following_base
    if segment.size >= coverage.size:
        return min(coverage.next_offset, following_base)
    end = sound_end(segment)
    segment.size = end.position
    return end.next_offset


def set_misplaced_aside(files: Files, path: str, segments: Iterable[Segment]) -> list[Segment]:
    """Rename the files of segments whose batches belong at other offsets; returns the segments that are left.

    No file is deleted: after a renaming by mistake, an operator can restore the old name.
    """
    kept = []
    for segment in segments:
        if _is_misplaced(segment):
            segment.release()
            files.rename(segment.path(LOG), segment.path(LOG) + MISPLACED)
            files.sync_dir(path)
        else:
            kept.append(segment)
    return kept


def _is_misplaced(segment: Segment) -> bool:
    """Returns true if the first batch of a segment is sound and has another offset than the file's name.

    No checksum covers a batch's offset, so a sound second batch has to continue it. Where there is none, the
    first batch may be damaged in place, and recovery treats it so.
    """
    data = segment.open_file().pread(HEADER_SIZE, 0) if segment.size else b""
    header = HEADER.unpack(data) if len(data) == HEADER_SIZE else None
    if header is None or not plausible(header, segment.size):
        return False
    if header[BASE_OFFSET] == segment.base_offset or (
        header[BASE_OFFSET] > segment.base_offset and segment.is_compacted
    ):
        return False
    batches = whole_batches(segment.open_file(), 0, segment.size)
    first, second = next(batches, None), next(batches, None)
    return (
        first is not None
        and second is not None
        and second[1][BASE_OFFSET] == header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    )
