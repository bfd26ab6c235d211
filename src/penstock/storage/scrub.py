"""Checks sealed segments again, to find damage while other replicas can still repair it.

A sealed segment never changes, so its checksums can be checked at any time, piece by piece, in another
process. Damage becomes part of the log's `RecoveryReport`, and reads treat it as damage that recovery found.
A damaged range is overwritten in place with the bytes of another replica: every replica has the same batches,
so the sound ones fit exactly. Replicas of a compacted log may have different batches; `compacted_repair`
rewrites the whole segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.ports import File, Files
from penstock.records.batch import LOG_OVERHEAD
from penstock.records.header_fields import (
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
)
from penstock.storage.batch_search import BatchSearch, whole_batches
from penstock.storage.chain import check_again
from penstock.storage.config import FOREVER
from penstock.storage.holes import is_hole
from penstock.storage.log import Log
from penstock.storage.recovery_report import Corruption
from penstock.storage.scan import scan
from penstock.storage.sealing import unseal
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, Damage

__all__ = [
    "Piece",
    "SealedSegment",
    "describe",
    "describe_as_is",
    "exchanged_segment",
    "note_damage",
    "repair_target",
    "repaired",
    "restore_damage",
    "scrub",
    "sealed_segments",
]


class SealedSegment(NamedTuple):
    """A segment to check in another process: its file, and its offsets."""

    path: str
    size: int
    base_offset: int
    #: where the next segment starts
    end_offset: int
    #: true if compaction may have left offsets out
    gaps_allowed: bool
    #: the newest leader epoch of the log; no checksum covers the epoch of a batch
    newest_epoch: int


class Piece(NamedTuple):
    """The checked part: the segment up to `position`, where the batch of `next_offset` starts."""

    position: int
    next_offset: int
    damage: tuple[Corruption, ...] = ()


def sealed_segments(log: Log) -> list[Segment]:
    """The segments to scrub; those that are known to be damaged are for repair instead."""
    return [segment for segment in log.segments if segment is not log.segments.active and not segment.damage]


def describe(log: Log, segment: Segment) -> SealedSegment | None:
    """None if `segment` has left the log, or takes appends again."""
    return None if segment is log.segments.active else describe_as_is(log, segment)


def describe_as_is(log: Log, segment: Segment) -> SealedSegment | None:
    """As if `segment` were sealed now, which is true until the next append; None if it has left the log."""
    if log.segments.holding(segment.base_offset) is not segment:
        return None
    following = log.segments.after(segment)
    end_offset = log.end_offset if following is None else following.base_offset
    return SealedSegment(
        segment.path(LOG),
        segment.size,
        segment.base_offset,
        end_offset,
        segment.is_compacted,
        log.leader_epochs.latest,
    )


def scrub(files: Files, sealed: SealedSegment, done: Piece, size: int) -> Piece:
    """Check about `size` more bytes of a segment, behind the checked ones; works in another process, too."""
    return _Scrub(sealed, done).check(files.open(sealed.path), size)


class _Scrub(BatchSearch):
    def __init__(self, sealed: SealedSegment, done: Piece) -> None:
        super().__init__(sealed.end_offset)
        self._sealed = sealed
        self._position = done.position
        self.next_offset = max(done.next_offset, sealed.base_offset)
        self._limit = sealed.end_offset
        self._gaps_allowed = sealed.gaps_allowed
        self._damage: list[Corruption] = []

    def check(self, file: File, size: int) -> Piece:
        end = self._sealed.size
        until = min(self._position + size, end)
        self._walk(file, until)
        while self._position < until:
            resume = self._next_sound(file, self._position, end, end)
            self._damaged(*(resume or (end, self._sealed.end_offset)))
            self._walk(file, until)
        if self._position >= end and self.next_offset < self._limit and not self._gaps_allowed:
            self._damaged(end, self._limit)
        return Piece(self._position, self.next_offset, tuple(self._damage))

    def _is_left_over(self, header: tuple[int, ...], next_offset: int) -> bool:
        """Returns true if a batch claims an epoch that the log never had: a bit of it has changed.

        A follower refuses such a batch, so it could never catch up.
        """
        return 0 <= self._sealed.newest_epoch < header[LEADER_EPOCH]

    def _walk(self, file: File, until: int) -> None:
        """Go over sound batches, to the first that is not or that starts at `until` or later."""
        end = self._sealed.size
        for position, header, _ in whole_batches(file, self._position, end):
            if position >= until or not self._follows(file, position, end, header, self.next_offset):
                return
            self._position = position + header[BATCH_LENGTH] + LOG_OVERHEAD
            self.next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1

    def _damaged(self, position: int, next_offset: int) -> None:
        """Sound again at `position`, with `next_offset`."""
        size = position - self._position
        self._damage.append(
            Corruption(self._sealed.path, self._position, size, self.next_offset, next_offset)
        )
        self._position, self.next_offset = position, next_offset


def exchanged_segment(sealed: SealedSegment) -> Corruption:
    """The damage of a segment whose batches are all those of another one."""
    return Corruption(sealed.path, 0, sealed.size, sealed.base_offset, sealed.end_offset)


def note_damage(log: Log, segment: Segment, damage: Corruption) -> Corruption:
    """Report damage of a log, so that reads of it fail; returns the damage as it was reported.

    It may contain damage that is known already. If it contains a hole, all of it is a hole. Why: batches are
    missing, so the batches of another replica do not fit into the bytes that are left.
    """
    contained = [
        known
        for known in log.recovery.corruption
        if damage.first_offset <= known.first_offset and known.next_offset <= damage.next_offset
    ]
    becomes_hole = segment is not log.segments.active and any(is_hole(log, known) for known in contained)
    for known in contained:
        _forget(log, segment, known)
    if becomes_hole:
        # The bytes stay in the file until the hole is filled.
        log.segments.shrink(segment, damage.position)
        damage = damage._replace(size=0)
    else:
        segment.damage.append(_place(damage))
        segment.damage.sort()
    log.recovery.found(damage)
    return damage


def restore_damage(log: Log, numbers: Sequence[int]) -> None:
    """Take over the damage that a manifest lists, unless the bytes are sound again.

    A segment file may have been restored from a backup meanwhile.
    """
    if not numbers:
        return
    known = {(damage.first_offset, damage.next_offset) for damage in log.recovery.corruption}
    for nth in range(0, len(numbers), 5):
        base_offset, position, size, first_offset, next_offset = numbers[nth : nth + 5]
        segment = log.segments.holding(base_offset)
        if (first_offset, next_offset) in known or segment.base_offset != base_offset:
            continue
        damage = Corruption(segment.path(LOG), position, size, first_offset, next_offset)
        if not size:
            log.recovery.found(damage)
        elif not _is_sound(segment, damage):
            note_damage(log, segment, damage)


def _is_sound(segment: Segment, damage: Corruption) -> bool:
    """Returns true if a damaged range has whole batches from its first offset to its end."""
    offset, end = damage.first_offset, damage.position + damage.size
    position = damage.position
    for start, header, _ in whole_batches(segment.open_file(), position, end):
        if header[BASE_OFFSET] != offset:
            break
        offset, position = (
            header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1,
            start + header[BATCH_LENGTH] + LOG_OVERHEAD,
        )
    segment.release()
    return (offset, position) == (damage.next_offset, end)


def _place(damage: Corruption) -> Damage:
    return Damage(damage.position, damage.position + damage.size, damage.next_offset)


def _forget(log: Log, segment: Segment, damage: Corruption) -> None:
    log.recovery.replaced(damage)
    segment.damage = [each for each in segment.damage if each != _place(damage)]


def repair_target(log: Log, damage: Corruption) -> File | None:
    """The file to write healthy bytes to, None where that cannot be done in place, or no longer.

    Only committed batches are equal on all replicas. If bytes are missing, or after compaction, the same
    offsets may be at other positions.
    """
    segment = log.segments.holding(damage.first_offset)
    end = damage.position + damage.size
    if (
        damage not in log.recovery.corruption
        or _place(damage) not in segment.damage
        or not damage.size
        or end > segment.size
        or damage.next_offset > log.high_watermark
        or damage.next_offset <= log.local_log_start_offset
        or segment.path(LOG) != damage.path
        or segment.is_compacted
    ):
        return None
    return segment.open_file()


def repaired(log: Log, damage: Corruption) -> list[File]:
    """The range is sound again, and on the disk. Returns the index files that must be synced."""
    segment = log.segments.holding(damage.first_offset)
    _forget(log, segment, damage)
    # Reads before may have followed a wrong length, and remember a place within a batch as a start of one.
    check_again(segment)
    _date(segment, _place(damage))
    if segment is log.segments.active:
        return []
    unseal(segment.files, [segment])
    return segment.save_indexes()


def _date(segment: Segment, regained: Damage) -> None:
    """Have timestamps lead to batches that recovery built the indexes without; offsets do anyway."""
    for position, header in scan(segment.open_file(), regained.position, regained.end):
        last_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        segment.index(
            position, header[BATCH_LENGTH] + LOG_OVERHEAD, last_offset, header[MAX_TIMESTAMP], FOREVER
        )
        segment.times().add_late(header[MAX_TIMESTAMP], last_offset - segment.base_offset)
    segment.indexes_saved = False
