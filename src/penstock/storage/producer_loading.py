"""Producers of a log from its snapshots and batches: at a start, and after a truncation."""

from __future__ import annotations

import re
from typing import Final

from penstock.ports import Files
from penstock.records.batch import CONTROL_BIT, LOG_OVERHEAD
from penstock.records.checksum import crc32c
from penstock.records.header_fields import ATTRIBUTES, BASE_OFFSET, BATCH_LENGTH
from penstock.storage.producers import ProducerStates
from penstock.storage.recovery import replay_batch
from penstock.storage.scan import CorruptLog
from penstock.storage.sealing import read_seal
from penstock.storage.seals import LogOwner
from penstock.storage.segment import Segment
from penstock.storage.segment_files import SEAL, SNAPSHOT, file_name
from penstock.storage.segments import Segments
from penstock.storage.snapshot import SnapshotDamaged, decode_snapshot
from penstock.storage.store import SegmentStore

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
    segments: Segments,
    snapshots: list[int],
    end_offset: int,
    files: Files,
    path: str,
    owner: LogOwner,
) -> ProducerStates:
    """The producers as of `end_offset`: the newest snapshot up to there, and the batches behind it.

    A snapshot that is not the one that `owner` wrote at its offset is not used.
    """
    producers = ProducerStates()
    start = segments.first.base_offset
    for offset in reversed([offset for offset in snapshots if start <= offset <= end_offset]):
        try:
            data = files.read(f"{path}/{file_name(offset)}{SNAPSHOT}")
            states = decode_snapshot(data, owner, offset)
            _check_seal(segments.holding(offset - 1), offset, data, files, owner)
            producers.load(states, offset)
        except SnapshotDamaged:
            producers.snapshot_refused = True
            continue
        start = offset
        break
    if start < end_offset:
        for segment in segments.since(start):
            _replay(producers, segment, start, end_offset)
    producers.end_offset = end_offset
    return producers


def _check_seal(segment: Segment, offset: int, data: bytes, files: Files, owner: LogOwner) -> None:
    """SnapshotDamaged if the segment that ends at `offset` has another snapshot or seal than it had."""
    seal = read_seal(files, segment, owner)
    if seal is None and segment.expected_seal.is_known(segment.size):
        raise SnapshotDamaged(f"{segment.path(SEAL)} is not that of the last clean shutdown")
    if seal is not None and seal.end_offset == offset and seal.snapshot not in (None, crc32c(data)):
        raise SnapshotDamaged(f"it is not the snapshot that {segment.path(SEAL)} has the checksum of")


def hold_back_undecided(producers: ProducerStates, store: SegmentStore, high_watermark: int) -> None:
    """Find the transactions whose markers are not below `high_watermark`, where a snapshot is behind it.

    Why: the last stable offset waits for markers. A snapshot does not say where a transaction has ended.
    """
    known_to, files, path = producers.snapshot_offset, store.files, store.path
    if high_watermark < known_to and producers.has_markers:
        below = [offset for offset in snapshots_in(files.listdir(path)) if offset <= high_watermark]
        earlier = load_producers(store.segments, below, known_to, files, path, store.owner)
        producers.hold_back(earlier, high_watermark)


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
