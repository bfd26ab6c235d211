"""Opening a log: from the files in its directory to segments, leader epochs, producers and an end offset.

After a clean shutdown little is read but the last segment's tail and a snapshot, so that thousands of
partitions open quickly. After a crash the segments from the recovery point on are walked (`recovery`). Sealed
segments have to continue each other in both cases (`continuity`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

from penstock.ports import Clock, Files
from penstock.records.header_fields import BASE_OFFSET, LAST_OFFSET_DELTA
from penstock.storage.config import LogConfig
from penstock.storage.continuity import find_holes, last_indexed, set_misplaced_aside
from penstock.storage.cut_records import CutRecords
from penstock.storage.epoch_loading import fit_epochs, load_epochs
from penstock.storage.epochs import EPOCHS_FILE, LeaderEpochs
from penstock.storage.flush import ClosedFile, Unsynced
from penstock.storage.folders import PARTITION_METADATA
from penstock.storage.producer_loading import load_producers, snapshots_in
from penstock.storage.producers import ProducerStates
from penstock.storage.recovery import SegmentRecovery
from penstock.storage.recovery_report import Corruption, RecoveryReport
from penstock.storage.removal import DELETED, set_aside
from penstock.storage.scan import CorruptLog, scan
from penstock.storage.sealing import expect_listed_seals, seal_segment
from penstock.storage.seals import NO_OWNER, LogOwner
from penstock.storage.segment import NO_TAIL, Segment
from penstock.storage.segment_files import (
    COMPACTED,
    LOG,
    OFFSET_INDEX,
    SEAL,
    SNAPSHOT,
    SUFFIXES,
    TIME_INDEX,
    TRANSACTION_INDEX,
    file_name,
)
from penstock.storage.segments import NO_OFFSETS, Segments
from penstock.storage.swap import SWAP_DIRECTORIES, finish_interrupted_swaps

__all__ = ["ClosedLog", "Loaded", "load"]

#: how the names of a segment's files begin
_BASE_OFFSET: Final = re.compile(r"0[0-9]{19}")
#: suffixes of files that an interrupted operation leaves behind
_DEBRIS: Final = (DELETED, ".tmp")
#: names of files in a log's directory that are no segment's
_OTHERS: Final = (EPOCHS_FILE, PARTITION_METADATA)
#: how the names of a segment's files end
_OURS: Final = (*SUFFIXES, DELETED)
#: the files of a log that nothing was ever appended to, and how the names of its segments begin
_NEW_STEMS: Final = [file_name(0)]
_NEW_LOG: Final = (f"{_NEW_STEMS[0]}{LOG}", PARTITION_METADATA)


class ClosedLog(NamedTuple):
    """A log at its clean shutdown: where its files are the same now, less of them has to be read."""

    #: base offset and size of each segment in turn, rising
    segments: Sequence[int]
    #: where a batch near the end of the last segment starts; -1 if that is not known
    tail: int
    #: true if no producer had written with an id
    no_producers: bool
    #: leader epoch and first offset in turn; None if they are not known
    epochs: Sequence[int] | None = None
    #: base offset of each segment with a seal, checksum of the seal and of the first batch header, in turn
    seals: Sequence[int] = ()


@dataclass(slots=True)
class Loaded:
    """The state of a log that was opened."""

    segments: Segments
    epochs: LeaderEpochs
    producers: ProducerStates
    report: RecoveryReport
    log_start_offset: int
    end_offset: int
    recovery_point: int
    #: files that recovery found or wrote above the recovery point: they may not be on the disk
    unsynced: list[Unsynced]
    #: true if names in the directory changed
    changed: bool
    #: the base offsets of segments that begin without a snapshot of the log's producers
    without_snapshot: frozenset[int]
    #: the start of the local segments, at or above the log start
    local_log_start_offset: int = 0


def load(
    files: Files,
    path: str,
    config: LogConfig,
    clock: Clock,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    start_recorded: bool = False,
    closed: ClosedLog | None = None,
    high_watermark: int = 0,
    owner: LogOwner = NO_OWNER,
    local_log_start_offset: int = 0,
) -> Loaded:
    """Open the log in the directory `path`, which is made if it is missing.

    With `start_recorded`, a first segment beyond both log starts means that its predecessors are missing.
    `closed` is the log at the clean shutdown: where the segment files are the same now, nothing is read to
    see that they continue each other. Recovery keeps the bytes that it truncates below `high_watermark`.

    Longer than other functions because each step needs the results of those before it.
    """
    (names, stems, foreign), now_ms = _names(files, path), clock.now_ms()
    local_start = max(log_start_offset, local_log_start_offset)
    bases = list(map(int, stems))
    found = _find_segments(files, path, names, stems, now_ms)
    if closed and closed.segments != [number for each in found for number in (each.base_offset, each.size)]:
        closed = None
    expect_listed_seals(found, owner, closed.seals if closed else ())
    kept = found if closed else set_misplaced_aside(files, path, found)
    segments = Segments(kept or [Segment.create(files, path, local_start, now_ms)])
    # A log that never had a segment needs no recovery.
    clean = clean or not (bases or recovery_point)
    report = RecoveryReport(clean=clean, foreign=foreign)
    epochs = load_epochs(files, path, names, segments, closed.epochs if closed else None, report, owner)
    snapshots = snapshots_in(names)
    end_offset = _clean_end(segments.active, closed.tail if closed else NO_TAIL) if clean else None
    if end_offset is None:
        report.clean = False
        cut, offsets = CutRecords(files, path, high_watermark, report), (recovery_point, local_start)
        recovery = _Recovery(files, path, config, *offsets, epochs, report, now_ms, cut, owner)
        end_offset = recovery.run(segments, snapshots)
        producers, unsynced = recovery.producers, recovery.unsynced
    else:
        if not closed:
            _report_holes(segments, list(segments), report)
        recovery_point, unsynced = end_offset, []
        producers = _clean_producers(files, path, segments, snapshots, end_offset, closed, owner)
    loaded = Loaded(
        segments=segments,
        epochs=epochs,
        producers=producers,
        report=report,
        log_start_offset=log_start_offset,
        end_offset=end_offset,
        recovery_point=recovery_point,
        unsynced=unsynced,
        changed=not (clean and bases),
        without_snapshot=NO_OFFSETS,
        local_log_start_offset=local_start,
    )
    if not producers.is_empty:
        loaded.without_snapshot = frozenset({each.base_offset for each in segments} - {*snapshots})
    _fit_log_start(files, path, loaded, start_recorded, now_ms)
    if closed and report.clean and (closed.epochs or epochs.epochs):
        _compare_epochs(loaded, closed.epochs)
    if snapshots:
        _remove_stray_snapshots(files, path, snapshots, bases, loaded.end_offset, report.clean)
    return loaded


def _clean_producers(
    files: Files,
    path: str,
    segments: Segments,
    snapshots: list[int],
    end_offset: int,
    closed: ClosedLog | None,
    owner: LogOwner,
) -> ProducerStates:
    """The producers of a log that was closed cleanly."""
    if not (closed and closed.no_producers):
        return load_producers(segments, snapshots, end_offset, files, path, owner)
    producers = ProducerStates()
    producers.end_offset = end_offset
    return producers


def _fit_log_start(files: Files, path: str, loaded: Loaded, start_recorded: bool, now_ms: int) -> None:
    """Make segments, offsets and leader epochs agree with the log start offset."""
    start = loaded.local_log_start_offset
    if loaded.end_offset < start:
        # DeleteRecords has deleted all records, or a crash has interrupted `Log.restart_behind`.
        set_aside(files, loaded.segments)
        files.sync_dir(path)
        loaded.segments = Segments([Segment.create(files, path, start, now_ms)])
        loaded.end_offset, loaded.unsynced, loaded.producers = start, [], ProducerStates()
    loaded.recovery_point = min(loaded.recovery_point, loaded.end_offset)
    first = loaded.segments.first
    if first.base_offset > start:
        if start_recorded:
            loaded.report.found(Corruption(first.path(LOG), 0, 0, start, first.base_offset))
        else:
            loaded.log_start_offset = loaded.local_log_start_offset = first.base_offset
    loaded.epochs.forget_from(loaded.end_offset)
    loaded.epochs.forget_before(min(first.base_offset, loaded.log_start_offset))


def _compare_epochs(loaded: Loaded, known: Sequence[int] | None) -> None:
    """Replace leader epochs that are not the `known` ones of the last clean shutdown."""
    start = min(loaded.segments.first.base_offset, loaded.log_start_offset)
    if known is not None and loaded.epochs.within(start, loaded.end_offset) != known:
        loaded.epochs.restore(known)
        loaded.epochs.forget_from(loaded.end_offset)
        loaded.report.other_epochs = True


def _find_segments(
    files: Files, path: str, names: Collection[str], stems: list[str], now_ms: int
) -> list[Segment]:
    if len(stems) > 1:
        names = set(names)
    segments = []
    for stem in stems:
        segment = Segment(files, path, int(stem), files.size(f"{path}/{stem}{LOG}"), now_ms)
        if stem + TRANSACTION_INDEX not in names:
            segment.transactions.assume_empty()
        segments.append(segment)
    return segments


def _report_holes(segments: Segments, checked: Sequence[Segment], report: RecoveryReport) -> None:
    """Report offsets that are missing between the segments `checked`, which are adjacent in `segments`."""
    for hole in find_holes(checked):
        report.found(hole)
        # A truncated segment has lost bytes, which its log must not count.
        segments.replace([], [])


def _names(files: Files, path: str) -> tuple[list[str], list[str], list[str]]:
    """The names in `path`, after interrupted swaps are completed and files without a segment are removed.

    Second, how the names of each segment's files begin. Third, the names that could be a segment's file and
    are not: they are left alone.
    """
    try:
        names = files.listdir(path)
    except FileNotFoundError:
        files.makedirs(path)
        return [], [], []
    if not SWAP_DIRECTORIES.isdisjoint(names):
        finish_interrupted_swaps(files, path)
        names = files.listdir(path)
    if tuple(names) == _NEW_LOG:
        return names, _NEW_STEMS, []
    logs = [name[: -len(LOG)] for name in names if name.endswith(LOG)]
    stems = [stem for stem in logs if _BASE_OFFSET.fullmatch(stem)]
    usual = {stem + suffix for stem in stems for suffix in SUFFIXES}
    usual.update(_OTHERS)
    foreign = []
    for name in [name for name in names if name not in usual]:
        stem, dot, suffix = name.partition(".")
        if name.endswith(_OURS) and _BASE_OFFSET.fullmatch(stem) is None:
            foreign.append(name)
        elif name.endswith(_DEBRIS) or (dot + suffix in SUFFIXES and dot + suffix != SNAPSHOT):
            # Left by an interrupted operation, or of a segment without a log.
            files.remove(f"{path}/{name}")
        else:
            continue
        names.remove(name)
    return names, stems, foreign


def _clean_end(segment: Segment, tail: int) -> int | None:
    """The offset behind the last batch of a segment that was closed cleanly, None if it does not look so."""
    if not segment.size:
        return segment.base_offset
    for position in (last_indexed(segment) if tail == NO_TAIL else tail, 0):
        try:
            end_offset = segment.base_offset
            for _, header in scan(segment.open_file(), position, segment.size):
                end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        except CorruptLog:
            continue
        segment.release()
        segment.known_tail = position
        return end_offset
    return None


def _remove_stray_snapshots(
    files: Files, path: str, snapshots: list[int], bases: list[int], end_offset: int, clean: bool
) -> None:
    """Remove snapshots behind the end of the log, and those that no segment starts with.

    The last snapshot of a clean shutdown is kept. After a crash, such a snapshot may be of a log that was
    truncated since: the removal need not have reached the disk.
    """
    last = max((offset for offset in snapshots if offset <= end_offset), default=-1) if clean else -1
    useful = {*bases, last}
    for offset in snapshots:
        if offset > end_offset or offset not in useful:
            # Recovery may have removed the snapshot with its segment.
            with suppress(FileNotFoundError):
                files.remove(f"{path}/{file_name(offset)}{SNAPSHOT}")


class _Recovery:
    """Recovers the segments from the recovery point on, and ends the log where it has to end."""

    def __init__(
        self,
        files: Files,
        path: str,
        config: LogConfig,
        recovery_point: int,
        log_start_offset: int,
        epochs: LeaderEpochs,
        report: RecoveryReport,
        now_ms: int,
        cut: CutRecords,
        owner: LogOwner,
    ) -> None:
        self._cut = cut
        self._owner = owner
        self._files = files
        self._path = path
        self._config = config
        self._recovery_point = recovery_point
        self._log_start_offset = log_start_offset
        self._epochs = epochs
        self._report = report
        self._now_ms = now_ms
        self.producers = ProducerStates()
        self.unsynced: list[Unsynced] = []

    def run(self, segments: Segments, snapshots: list[int]) -> int:
        """Returns the log's end offset."""
        # The segment that ends at the recovery point, too: it may have been sealed after the sync that made
        # it the recovery point, and its index files with it.
        unsure = segments.since(self._recovery_point - 1)
        start = unsure[0].base_offset
        before = [segment for segment in segments if segment.base_offset <= start]
        _report_holes(segments, before, self._report)
        self.producers = load_producers(segments, snapshots, start, self._files, self._path, self._owner)
        # The batches have the epochs, too. After a crash, the file may be older than the batches.
        self._epochs.forget_from(start)
        fit_epochs(self._epochs, [segment for segment in before if segment.base_offset < start], self._report)
        walker = SegmentRecovery(
            self._config,
            self._recovery_point,
            self._epochs,
            self.producers,
            self._report,
            self._cut.before_truncation,
            self._cut.high_watermark,
        )
        for position, segment in enumerate(unsure):
            following = unsure[position + 1].base_offset if position + 1 < len(unsure) else None
            if not walker.walk(segment, following):
                self._drop(segments, unsure[position + 1 :])
                break
        end_offset = self._close_gap(segments, walker.next_offset)
        self._report.walked_from = start
        for segment in segments.since(start):
            self._finish(segment, segments.after(segment))
        return end_offset

    def _finish(self, segment: Segment, following: Segment | None) -> None:
        """Plan a sync of a recovered segment: it may be in the page cache only."""
        if following is not None:
            segment.save_indexes()
            seal_segment(segment, self._files, self._owner, following.base_offset, None)
            if segment.is_compacted:
                segment.mark_compacted(following.base_offset)
        for suffix in (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, COMPACTED, SEAL):
            self.unsynced.append(ClosedFile(self._files, segment.path(suffix)))
        segment.release()

    def _drop(self, segments: Segments, dropped: list[Segment]) -> None:
        segments.replace(dropped, [])
        for segment in dropped:
            self._report.segments_dropped += 1
            self._report.bytes_cut += segment.size
            self._cut.keep(segment)
            for suffix in SUFFIXES:
                if self._files.exists(segment.path(suffix)):
                    self._files.remove(segment.path(suffix))
        # The removed segments must not come back after a crash, behind batches that replace them.
        self._files.sync_dir(self._path)

    def _close_gap(self, segments: Segments, end_offset: int) -> int:
        """Never give an offset twice: behind lost records the log goes on in a new segment."""
        active = segments.active
        missing = max(end_offset, self._log_start_offset) < self._recovery_point
        if missing:
            lost = Corruption(active.path(LOG), active.size, 0, end_offset, self._recovery_point)
            self._report.corruption.append(lost)
            end_offset = self._recovery_point
        if missing or active.open_file().size() != active.size:
            segments.push(Segment.create(self._files, self._path, end_offset, self._now_ms))
        return end_offset
