"""Recovery after a crash: walks segments, truncates unacknowledged batches, and reports damage.

Everything below the recovery point was on the disk when it was acknowledged. A damaged batch there is
corruption: it is reported, and neither it nor the batches behind it are removed.

Above the recovery point a batch may be damaged for two reasons. After a crash, data is missing: the file is
short, or a sector was never written and reads as zeros. Then the log ends before that batch, even if batches
follow. A faulty disk changes bytes: none is missing, and the batches behind are sound. That is corruption,
too.

A sound batch need not belong to the log. If the log was truncated just before the crash, the disk may have
the new batches and, behind them, old ones whose removal was not synced. These are recognised by their leader
epochs, which only rise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeAlias

from penstock.ports import Buffer, File
from penstock.records.batch import (
    CONTROL_BIT,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from penstock.records.checksum import crc32c
from penstock.records.control import parse_end_transaction
from penstock.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CRC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
)
from penstock.storage.config import LogConfig
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.producers import ProducerStates
from penstock.storage.recovery_report import Corruption, RecoveryReport
from penstock.storage.scan import CorruptLog, plausible, scan
from penstock.storage.segment import Segment
from penstock.storage.segment_files import LOG, Damage
from penstock.storage.transactions import AbortedTransaction

__all__ = ["BatchSearch", "SegmentRecovery", "replay_batch", "whole_batches"]

_CHUNK_BYTES: Final = 4 * 1024 * 1024
_OFFSETS_MAX: Final = 2**31
#: the unit that a disk writes as a whole or not at all
_SECTOR_BYTES: Final = 512
_NEVER_WRITTEN: Final = bytes(_SECTOR_BYTES)
#: a shorter piece at the end of a segment says nothing by being zeros: values may end with some, records do
_LAST_PIECE_BYTES: Final = 64
#: bytes at a batch's start that must be read to recognise a candidate
_CANDIDATE_BYTES: Final = 17
#: takes a segment's open file, the position at which it is truncated, and the end offset before it
BeforeTruncation: TypeAlias = Callable[[File, int, int], None]


def whole_batches(file: File, position: int, end: int) -> Iterator[tuple[int, tuple[int, ...], memoryview]]:
    """(position, header fields, bytes) of each batch whose checksum holds; ends before the first without."""
    chunk = memoryview(b"")
    start = position
    while position + HEADER_SIZE <= end:
        if position + HEADER_SIZE > start + len(chunk):
            start = position
            chunk = memoryview(file.pread(min(_CHUNK_BYTES, end - position), position))
            if len(chunk) < HEADER_SIZE:
                return
        header = HEADER.unpack_from(chunk, position - start)
        if not plausible(header, end - position):
            return
        size = header[BATCH_LENGTH] + LOG_OVERHEAD
        if position + size > start + len(chunk):
            start = position
            chunk = memoryview(file.pread(max(min(_CHUNK_BYTES, end - position), size), position))
        batch = chunk[position - start : position - start + size]
        if crc32c(batch[CRC_START:]) != header[CRC]:
            return
        yield position, header, batch
        position += size


def _written_end(file: File, position: int, end: int) -> int:
    """The position of the first sector from `position` on that was never written; `end` if there is none.

    A sector that lies only partly in [position, end) counts with that part, if the part is longer than the
    zeros that may be at the start or the end of a sound batch.
    """
    aligned = position + -position % _SECTOR_BYTES
    if aligned - position >= LOG_OVERHEAD and not any(file.pread(min(aligned, end) - position, position)):
        return position
    for start in range(aligned, end, _CHUNK_BYTES):
        chunk = memoryview(file.pread(min(_CHUNK_BYTES, end - start), start))
        for at in range(0, len(chunk), _SECTOR_BYTES):
            sector = chunk[at : at + _SECTOR_BYTES]
            if len(sector) >= _LAST_PIECE_BYTES and sector == _NEVER_WRITTEN[: len(sector)]:
                return start + at
    return end


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


class BatchSearch:
    """Finds the batches of a segment that belong to the log, at the right offsets."""

    def __init__(self, recovery_point: int) -> None:
        self._recovery_point = recovery_point
        #: behind the last batch that was found
        self.next_offset = 0
        #: of the segment that is being walked: where its offsets must end at the latest, whether it is the
        #: log's last one, and whether some may be missing
        self._limit = 0
        self._open_end = False
        self._gaps_allowed = False

    def _is_left_over(self, header: tuple[int, ...], next_offset: int) -> bool:
        """Returns true if a batch was truncated before the crash, and the disk still has it."""
        return False

    def _follows(
        self, file: File, position: int, end: int, header: tuple[int, ...], next_offset: int
    ) -> bool:
        """Returns true if the whole batch at `position` may come next, `next_offset` being free."""
        return not self._is_left_over(header, next_offset) and (
            header[BASE_OFFSET] == next_offset
            or (self._gaps_allowed and self._believable(file, position, end, header, next_offset))
        )

    def _believable(
        self, file: File, position: int, end: int, header: tuple[int, ...], at_least: int
    ) -> bool:
        """Returns true if a sound batch behind a gap is where its offset says, which no checksum covers.

        The batch behind it has to follow; behind the last one comes the next segment or the recovery point.
        """
        next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        behind = position + header[BATCH_LENGTH] + LOG_OVERHEAD
        if header[BASE_OFFSET] < at_least or next_offset > self._limit:
            return False
        following = file.pread(HEADER_SIZE, behind)
        if len(following) < HEADER_SIZE or behind >= end:
            return self._gaps_allowed or next_offset in (self._limit, self._recovery_point)
        base: int = HEADER.unpack(following)[0]
        return base == next_offset or (self._gaps_allowed and base > next_offset)

    def _next_sound(self, file: File, position: int, end: int, search_end: int) -> tuple[int, int] | None:
        """(position, base offset) of the first batch behind the damage at `position` that can be believed.

        It starts before `search_end`; the segment ends at `end`.
        """
        # Offsets in one segment share their high half; that and the magic byte make candidates rare.
        high = (self.next_offset >> 32).to_bytes(4, "big")
        candidate = re.compile(b"(?=%s.{12}\\x%02x)" % (re.escape(high), MAGIC), re.DOTALL)
        for start in range(position + 1, search_end, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, search_end - start) + _CANDIDATE_BYTES - 1
            for match in candidate.finditer(file.pread(size, start)):
                at = start + match.start()
                header = _header(file, at, end)
                if (
                    header is not None
                    and (
                        self._believable(file, at, end, header, self.next_offset)
                        or self._ends_log(file, position, at, end, header)
                    )
                    and not self._is_left_over(header, self.next_offset)
                    # Last: bytes that only look like a batch may have a length up to the end of the segment.
                    and _checksum_holds(file, at, header)
                ):
                    return at, header[BASE_OFFSET]
        return None

    def _ends_log(self, file: File, damaged: int, position: int, end: int, header: tuple[int, ...]) -> bool:
        """Returns true if a sound batch is the last one, and the header of the damaged one agrees."""
        size, next_offset = header[BATCH_LENGTH] + LOG_OVERHEAD, self.next_offset
        return (
            self._open_end
            and position + size == end
            and header[BASE_OFFSET]
            == next_offset + HEADER.unpack(file.pread(HEADER_SIZE, damaged))[LAST_OFFSET_DELTA] + 1
        )


def _header(file: File, position: int, end: int) -> tuple[int, ...] | None:
    """The header of a batch that may be at `position`."""
    data = file.pread(HEADER_SIZE, position)
    header = HEADER.unpack(data) if len(data) == HEADER_SIZE else None
    return header if header is not None and plausible(header, end - position) else None


def _checksum_holds(file: File, position: int, header: tuple[int, ...]) -> bool:
    checked = file.pread(header[BATCH_LENGTH] + LOG_OVERHEAD - CRC_START, position + CRC_START)
    return bool(crc32c(checked) == header[CRC])


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
    ) -> None:
        super().__init__(recovery_point)
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
        self._limit = following_base or segment.base_offset + _OFFSETS_MAX
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
        return next_offset >= self._recovery_point and header[LEADER_EPOCH] < self._epochs.latest

    def _resume(
        self, file: File, position: int, end: int, following_base: int | None
    ) -> tuple[int, int] | None:
        """(position, offset) where the log is sound again behind damage; None if the log ends before it."""
        acknowledged = self.next_offset < self._recovery_point
        written = end if acknowledged else _written_end(file, position, end)
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
            if header[LEADER_EPOCH] > epochs.latest:
                epochs.assign(header[LEADER_EPOCH], header[BASE_OFFSET])
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
