"""Producers of a log from its snapshots and batches: at a start, and after a truncation."""

from __future__ import annotations

import re
from typing import Final

from penstock.ports import Files
from penstock.records.batch import CONTROL_BIT, LOG_OVERHEAD
from penstock.records.header_fields import ATTRIBUTES, BASE_OFFSET, BATCH_LENGTH
from penstock.storage.producers import ProducerStates
from penstock.storage.recovery import replay_batch
from penstock.storage.scan import CorruptLog
from penstock.storage.segment import Segment
from penstock.storage.segment_files import SNAPSHOT, file_name
from penstock.storage.segments import Segments
from penstock.storage.snapshot import SnapshotDamaged, decode_snapshot

__all__ = ["hold_back_undecided", "load_producers", "prune_snapshots", "snapshots_in"]

_BASE_OFFSET: Final = re.compile(r"0[0-9]{19}")


def snapshots_in(names: list[str]) -> list[int]:
    """The offsets of the producer snapshots among `names`, rising."""
    stems = [name[: -len(SNAPSHOT)] for name in names if name.endswith(SNAPSHOT)]
    return [int(stem) for stem in stems if _BASE_OFFSET.fullmatch(stem)]


def prune_snapshots(files: Files, path: str, end_offset: int) -> list[int]:
    """Remove the snapshots behind `end_offset`; returns the offsets of the remaining ones, rising."""
    snapshots = snapshots_in(files.listdir(path))
    for offset in snapshots:
        if offset > end_offset:
            files.remove(f"{path}/{file_name(offset)}{SNAPSHOT}")
    return [offset for offset in snapshots if offset <= end_offset]


def load_producers(
    segments: Segments, snapshots: list[int], end_offset: int, files: Files, path: str
) -> ProducerStates:
    """The producers as of `end_offset`: the newest snapshot up to there, and the batches behind it."""
    producers = ProducerStates()
    start = segments.first.base_offset
    for offset in reversed([offset for offset in snapshots if start <= offset <= end_offset]):
        try:
            producers.load(decode_snapshot(files.read(f"{path}/{file_name(offset)}{SNAPSHOT}")), offset)
        except SnapshotDamaged:
            continue
        start = offset
        break
    if start < end_offset:
        for segment in segments.since(start):
            _replay(producers, segment, start, end_offset)
    producers.end_offset = end_offset
    return producers


def hold_back_undecided(
    producers: ProducerStates, segments: Segments, high_watermark: int, files: Files, path: str
) -> None:
    """Find the transactions whose markers are not below `high_watermark`, where a snapshot is behind it.

    Why: the last stable offset waits for markers. A snapshot does not say where a transaction has ended.
    """
    known_to = producers.snapshot_offset
    if high_watermark < known_to and producers.has_markers:
        below = [offset for offset in snapshots_in(files.listdir(path)) if offset <= high_watermark]
        producers.hold_back(load_producers(segments, below, known_to, files, path), high_watermark)


def _replay(producers: ProducerStates, segment: Segment, start: int, end_offset: int) -> None:
    try:
        for position, header in segment.scan(segment.find(start)):
            if header[BASE_OFFSET] >= end_offset:
                break
            size = header[BATCH_LENGTH] + LOG_OVERHEAD if header[ATTRIBUTES] & CONTROL_BIT else 0
            replay_batch(producers, header, segment.open_file().pread(size, position))
    except CorruptLog:
        # Reads of the damage fail. The producers are replayed from the readable batches.
        return
    finally:
        segment.release()
