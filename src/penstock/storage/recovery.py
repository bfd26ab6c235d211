"""Walking segments after a crash: what survived, what has to go, and what should be there and is not.

Everything below the recovery point was on the disk when it was acknowledged. A batch there that is damaged is
corruption: it is reported, and neither it nor what follows is dropped. Above the recovery point a crash may
leave anything: the log ends before the first batch that is not whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.ports import Buffer, File
from penstock.records.batch import CONTROL_BIT, CRC_START, HEADER, HEADER_SIZE, LOG_OVERHEAD, MAGIC
from penstock.records.control import parse_end_transaction
from penstock.storage.config import FOREVER, LogConfig
from penstock.storage.epochs import LeaderEpochs
from penstock.storage.producers import ProducerStates
from penstock.storage.scan import CorruptLog, plausible
from penstock.storage.segment import LOG, Segment
from penstock.storage.transactions import AbortedTransaction

__all__ = ["Corruption", "RecoveryReport", "SegmentRecovery", "replay_batch", "whole_batches"]

_CHUNK_BYTES: Final = 4 * 1024 * 1024


class Corruption(NamedTuple):
    """Acknowledged records that are damaged or missing; `next_offset` is the first sound one behind them."""

    path: str
    position: int
    size: int
    first_offset: int
    next_offset: int


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found out."""

    clean: bool = True
    segments_walked: int = 0
    bytes_walked: int = 0
    bytes_cut: int = 0
    segments_dropped: int = 0
    #: in the order of offsets
    corruption: list[Corruption] = field(default_factory=list)

    def sound_end(self, offset: int) -> int:
        """Up to where the log is sound from `offset` on; CorruptLog if it is not sound there."""
        for damage in self.corruption:
            if offset < damage.first_offset:
                return damage.first_offset
            if offset < damage.next_offset:
                raise CorruptLog(
                    f"offsets {damage.first_offset} to {damage.next_offset - 1} are damaged in {damage.path}"
                )
        return FOREVER


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
        size = header[1] + LOG_OVERHEAD
        if position + size > start + len(chunk):
            start = position
            chunk = memoryview(file.pread(max(min(_CHUNK_BYTES, end - position), size), position))
        batch = chunk[position - start : position - start + size]
        if crc32c(batch[CRC_START:]) != header[4]:
            return
        yield position, header, batch
        position += size


def replay_batch(
    producers: ProducerStates, header: tuple[int, ...], batch: Buffer
) -> AbortedTransaction | None:
    """Bring `producers` up to date with a batch of the log; returns the transaction that it aborts.

    Only of control batches is `batch` looked at; control batches of a kind unknown here mean nothing here.
    """
    aborted = None
    control = header[5] & CONTROL_BIT
    if header[9] >= 0:
        marker = parse_end_transaction(batch) if control else None
        if marker is not None or not control:
            completed = producers.apply(header, header[0], marker)
            if completed is not None and completed.aborted:
                stable = producers.last_stable_after(completed)
                aborted = AbortedTransaction(*completed[:3], stable)
    producers.end_offset = header[0] + header[6] + 1
    return aborted


class SegmentRecovery:
    """Walks segments in order from one on, rebuilding their indexes and what the log knows of its batches."""

    def __init__(
        self,
        config: LogConfig,
        recovery_point: int,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        report: RecoveryReport,
    ) -> None:
        self._interval = config.index_interval_bytes
        self._recovery_point = recovery_point
        self._epochs = epochs
        self._producers = producers
        self._report = report
        #: behind the last batch that was found
        self.next_offset = 0

    def walk(self, segment: Segment, following_base: int | None) -> bool:
        """Recover `segment`; False if the log ends in it and whatever follows must go."""
        self.next_offset = max(self.next_offset, segment.base_offset)
        segment.transactions.clear()
        segment.start_indexes()
        file = segment.open_file()
        end = segment.size
        position = self._walk_sound(segment, file, 0, end)
        while position < end and self.next_offset < self._recovery_point:
            resume = self._next_sound(file, position, end)
            if resume is None:
                self._report_corrupt(segment, position, end - position, following_base)
                # The bytes stay where they are, but nothing may be read or written behind what is sound.
                segment.size = position
                break
            self._report_corrupt(segment, position, resume[0] - position, resume[1])
            position = self._walk_sound(segment, file, resume[0], end)
        self._report.segments_walked += 1
        self._report.bytes_walked += end
        if position < segment.size:
            self._report.bytes_cut += segment.size - position
            file.truncate(position)
            segment.size = position
            return False
        return self._continues(segment, following_base)

    def _continues(self, segment: Segment, following_base: int | None) -> bool:
        """Whether the next segment follows: what was rolled later may have reached the disk earlier."""
        if following_base is None or self.next_offset == following_base:
            return True
        if self.next_offset < following_base and segment.is_compacted:
            return True
        if self.next_offset < self._recovery_point:
            self._report_corrupt(segment, segment.size, 0, following_base)
            return True
        return False

    def _walk_sound(self, segment: Segment, file: File, position: int, end: int) -> int:
        """Take in sound batches from `position` on; returns where they end."""
        next_offset = self.next_offset
        base_offset = segment.base_offset
        epochs, producers, interval = self._epochs, self._producers, self._interval
        sound_to = position
        for start, header, batch in whole_batches(file, position, end):
            if header[0] < next_offset or header[0] + header[6] - base_offset >= 2**31:
                break
            size = header[1] + LOG_OVERHEAD
            next_offset = header[0] + header[6] + 1
            segment.index(start, size, next_offset - 1, header[8], interval)
            if header[2] > epochs.latest:
                epochs.assign(header[2], header[0])
            aborted = replay_batch(producers, header, batch)
            if aborted is not None:
                segment.transactions.add(aborted)
            sound_to = start + size
        self.next_offset = next_offset
        return sound_to

    def _report_corrupt(self, segment: Segment, position: int, size: int, next_offset: int | None) -> None:
        if next_offset is None:
            next_offset = self._recovery_point
        path = segment.path(LOG)
        self._report.corruption.append(Corruption(path, position, size, self.next_offset, next_offset))
        self.next_offset = max(self.next_offset, next_offset)

    def _next_sound(self, file: File, position: int, end: int) -> tuple[int, int] | None:
        """(position, base offset) of the first sound batch behind the damage at `position`."""
        # Offsets in one segment share their high half; that and the magic byte make candidates rare.
        high = (self.next_offset >> 32).to_bytes(4, "big")
        candidate = re.compile(b"(?=%s.{12}\\x%02x)" % (re.escape(high), MAGIC), re.DOTALL)
        rest = memoryview(file.pread(end - position, position))
        for match in candidate.finditer(rest, 1):
            header = (
                HEADER.unpack_from(rest, match.start()) if match.start() + HEADER_SIZE <= len(rest) else None
            )
            if (
                header is None
                or header[0] < self.next_offset
                or not plausible(header, len(rest) - match.start())
            ):
                continue
            batch = rest[match.start() : match.start() + header[1] + LOG_OVERHEAD]
            if crc32c(batch[CRC_START:]) == header[4]:
                return position + match.start(), header[0]
        return None
