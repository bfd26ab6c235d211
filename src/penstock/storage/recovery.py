"""Recovery after a crash: walks segments, truncates unacknowledged batches, and reports damage.

Everything below the recovery point was on the disk when it was acknowledged. A damaged batch there is
corruption: it is reported, and neither it nor the batches behind it are removed.

Above the recovery point a batch may be damaged for two reasons. After a crash, data is missing: the file is
short, or a sector was never written and reads as zeros. Then the log ends before that batch, even if batches
follow. A faulty disk changes bytes: none is missing, and the batches behind are sound. That is corruption,
too.

A sound batch need not belong to the log. If the log was truncated just before the crash, the disk may have
the new batches and, behind them, old ones whose removal was not synced. These are recognised by their leader
epochs, which only rise. Batches below the recorded high watermark are committed, and no log is truncated
below it: there a lower epoch means that the epoch of the batch before is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from penstock.ports import Buffer, File
from penstock.records.batch import (
    CONTROL_BIT,
    LOG_OVERHEAD,
    TRANSACTIONAL_BIT,
)
from penstock.records.control import parse_end_transaction
from penstock.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
)
from penstock.storage.batch_search import OFFSETS_MAX, BatchSearch, whole_batches, written_end
from penstock.storage.config import LogConfig
from penstock.storage.epochs import NO_OFFSET, LeaderEpochs
from penstock.storage.producers import ProducerStates
from penstock.storage.recovery_report import Corruption, RecoveryReport
from penstock.storage.scan import CorruptLog, scan
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, Damage
from penstock.storage.transactions import AbortedTransaction

__all__ = [
    "SegmentRecovery",
    "replay_batch",
]

#: takes a segment's open file, the position at which it is truncated, and the end offset before it
BeforeTruncation: TypeAlias = Callable[[File, int, int], None]


def replay_batch(
    producers: ProducerStates, header: tuple[int, ...], batch: Buffer
) -> AbortedTransaction | None:
    """Bring `producers` up to date with a batch of the log; returns the transaction that it aborts.

    Only of control batches is `batch` looked at; control batches of a kind unknown here mean nothing here.
    """
    aborted = None
    control = header[ATTRIBUTES] & CONTROL_BIT
    if header[PRODUCER_ID] >= 0:
        marker = parse_end_transaction(batch) if control else None
        if marker is not None or not control:
            completed = producers.apply(header, header[BASE_OFFSET], marker)
            if completed is not None and completed.aborted:
                stable = producers.last_stable_after(completed)
                aborted = AbortedTransaction(*completed[:3], stable)
    producers.end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    return aborted


class SegmentRecovery(BatchSearch):
    """Walks segments in order, and rebuilds their indexes, the producers and the leader epochs of the log."""

    def __init__(
        self,
        config: LogConfig,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        report: RecoveryReport,
        before_truncation: BeforeTruncation,
        high_watermark: int = 0,
    ) -> None:
        super().__init__(recovery_point)
        #: everything below was on the disk or is committed
        self._kept_to = max(recovery_point, high_watermark)
        self._last_base = NO_OFFSET
        self._before_truncation = before_truncation
        self._interval = config.index_interval_bytes
        self._epochs = epochs
        self._producers = producers
        self._report = report
        #: of the damaged batches before the next sound one, those whose headers fit
        self._rotten: list[tuple[int, ...]] = []

    def walk(self, segment: Segment, following_base: int | None) -> bool:
        """Recover `segment`; False if the log ends in it and the segments behind it must be removed."""
        known = segment.transactions.entries()
        continues = self._walk(segment, following_base)
        if known and self._report.corruption:
            self._keep_aborted(segment, known)
        return continues

    def _keep_aborted(self, segment: Segment, known: Iterable[AbortedTransaction]) -> None:
        """Keep synced entries of aborted transactions that the damage may hide or change."""
        damaged_from = self._report.corruption[0].first_offset
        found = {aborted.last_offset: aborted for aborted in segment.transactions.entries()}
        kept = found | {
            aborted.last_offset: aborted
            for aborted in known
            if max(damaged_from, segment.base_offset) <= aborted.last_offset < self._recovery_point
            and aborted.last_offset < self._limit
            and 0 <= aborted.first_offset < aborted.last_offset
        }
        if kept != found:
            segment.transactions.rewrite(kept[offset] for offset in sorted(kept))

    def _walk(self, segment: Segment, following_base: int | None) -> bool:
        self.next_offset = max(self.next_offset, segment.base_offset)
        self._limit = following_base or segment.base_offset + OFFSETS_MAX
        self._open_end = following_base is None
        self._gaps_allowed = segment.is_compacted
        segment.transactions.clear()
        segment.start_indexes()
        file = segment.open_file()
        end = segment.size
        self._report.segments_walked += 1
        self._report.bytes_walked += end
        position = self._walk_sound(segment, file, 0, end)
        while position < end and (resume := self._resume(file, position, end, following_base)) is not None:
            self._report_corrupt(segment, file, position, *resume)
            position = self._walk_sound(segment, file, resume[0], end)
        if position < end:
            segment.size = position
            if self.next_offset >= self._recovery_point:
                self._report.bytes_cut += end - position
                self._before_truncation(file, position, self.next_offset)
                file.truncate(position)
                return False
            # The bytes stay in the file, but no read or append goes behind the sound ones.
            self._report_corrupt(segment, file, position, end, following_base)
        return self._continues(segment, following_base)

    def _is_left_over(self, header: tuple[int, ...], next_offset: int) -> bool:
        return next_offset >= self._kept_to and header[LEADER_EPOCH] < self._epochs.latest

    def _resume(
        self, file: File, position: int, end: int, following_base: int | None
    ) -> tuple[int, int] | None:
        """(position, offset) where the log is sound again behind damage; None if the log ends before it."""
        acknowledged = self.next_offset < self._recovery_point
        written = end if acknowledged else written_end(file, position, end)
        found = self._next_sound(file, position, end, written)
        if (
            found is None
            and written == end
            and following_base is not None
            and self._headers(file, position, end, following_base)
        ):
            # Only the next segment is left to follow; that nothing is missing before it, the headers say.
            return end, following_base
        return found

    def _headers(self, file: File, position: int, end: int, next_offset: int) -> list[tuple[int, ...]]:
        """The headers of damaged batches; none unless they lead from here to exactly `next_offset`."""
        headers, offset = [], self.next_offset
        try:
            for _, header in scan(file, position, end):
                if header[BASE_OFFSET] != offset:
                    return []
                headers.append(header)
                offset += header[LAST_OFFSET_DELTA] + 1
        except CorruptLog:
            return []
        return headers if offset == next_offset else []

    def _continues(self, segment: Segment, following_base: int | None) -> bool:
        """Returns true if the next segment continues this one: a later segment may be on the disk earlier."""
        if following_base is None or self.next_offset == following_base:
            return True
        if self.next_offset < following_base and self._gaps_allowed:
            coverage = segment.coverage()
            if coverage is None or not coverage.next_offset < min(following_base, self._recovery_point):
                return True
            self.next_offset = max(self.next_offset, coverage.next_offset)
        if self.next_offset < self._recovery_point:
            self._report_corrupt(segment, segment.open_file(), segment.size, segment.size, following_base)
            return True
        return False

    def _walk_sound(self, segment: Segment, file: File, position: int, end: int) -> int:
        """Take in sound batches from `position` on; returns where they end."""
        next_offset = self.next_offset
        epochs, producers, interval = self._epochs, self._producers, self._interval
        sound_to = position
        for start, header, batch in whole_batches(file, position, end):
            if not self._follows(file, start, end, header, next_offset):
                break
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            segment.index(start, size, next_offset - 1, header[MAX_TIMESTAMP], interval)
            if self._rotten:
                self._learn_epochs(header[LEADER_EPOCH])
            if header[LEADER_EPOCH] != epochs.latest:
                epochs.follow(header[LEADER_EPOCH], header[BASE_OFFSET], self._last_base)
            self._last_base = header[BASE_OFFSET]
            aborted = replay_batch(producers, header, batch)
            if aborted is not None:
                segment.transactions.add(aborted)
            sound_to = start + size
        self.next_offset = next_offset
        return sound_to

    def _learn_epochs(self, epoch: int) -> None:
        """Add epochs that damaged batches may have begun, up to `epoch` of the next sound batch."""
        for header in self._rotten:
            if self._epochs.latest < header[LEADER_EPOCH] <= epoch:
                self._epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
        self._rotten = []

    def _report_corrupt(
        self, segment: Segment, file: File, position: int, end: int, next_offset: int | None
    ) -> None:
        """Note that [position, end) is damaged, or that offsets are missing if that is nothing.

        Where it is only records that have rotted, the headers still have the sequences of their producers.
        """
        if next_offset is None:
            next_offset = self._recovery_point
        self._rotten = self._headers(file, position, end, next_offset)
        for header in self._rotten:
            # The damaged bit may be the one of transactions: such a transaction would never end.
            if header[PRODUCER_ID] >= 0 and not header[ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT):
                self._producers.apply(header, header[BASE_OFFSET], None)
        path, first_offset = segment.path(LOG), self.next_offset
        self._report.corruption.append(Corruption(path, position, end - position, first_offset, next_offset))
        if end > position:
            segment.damage.append(Damage(position, end, next_offset))
        self.next_offset = max(first_offset, next_offset)
