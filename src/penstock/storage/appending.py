"""Appends to a log: checks batches, writes offsets and leader epochs into them, and writes them to a segment.

An append that fails leaves the log as it was. Cost is per batch, never per record.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, Protocol, TypeAlias

from penstock.model.errors import (
    CorruptMessage,
    RecordListTooLarge,
    StorageError,
)
from penstock.ports import Buffer, Clock
from penstock.records.batch import CONTROL_BIT, LOG_OVERHEAD
from penstock.records.control import EndTransaction, parse_end_transaction
from penstock.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAX_TIMESTAMP,
    PRODUCER_ID,
)
from penstock.storage.config import LogConfig
from penstock.storage.epochs import NO_OFFSET, LeaderEpochs
from penstock.storage.guards import VerificationGuard
from penstock.storage.health import Health
from penstock.storage.producers import AppendOrigin, CompletedTransaction, ProducerStates
from penstock.storage.rules import Rules, rules_of, rules_without_clock
from penstock.storage.segment import Segment
from penstock.storage.sequence_gaps import SequenceGap, SequenceGaps
from penstock.storage.store import SegmentStore
from penstock.storage.transactions import AbortedTransaction
from penstock.storage.validation import check_replicated, validate

__all__ = ["NOTHING_NEW", "Appended", "Appender", "ExtendedLog", "OffsetGap"]

#: (first offset, end offset, batches), of no batch
NOTHING_NEW: Final = (-1, -1, b"")
#: base offset, length, leader epoch: the fields that an append writes into a batch
_STAMP: Final = Struct(">qii")
#: the last append is kept in memory up to this size
_NEWEST_BYTES_MAX: Final = 2 << 10
#: a batch to write: its header's fields, its offset, and the end of a transaction if it is a marker
_Placed: TypeAlias = tuple[tuple[int, ...], int, EndTransaction | None]


class Appended(NamedTuple):
    """The outcome of an append."""

    base_offset: int
    last_offset: int
    #: -1 unless the log stamps batches with the time of their append
    append_time_ms: int
    log_start_offset: int
    #: true if the batch had been appended before; nothing was written
    duplicate: bool


#: `Appended(…)` without the call of a Python function: every Produce request makes one
_appended: Final = tuple.__new__


class OffsetGap(CorruptMessage):
    """The leader has left out offsets of a topic that is not compacted."""

    def __init__(self, offset: int, next_offset: int) -> None:
        super().__init__(f"the leader has sent offset {next_offset} in place of {offset}")
        self.offset = offset
        self.next_offset = next_offset


class ExtendedLog(Protocol):
    """A log as its appender uses it."""

    end_offset: int
    producers: ProducerStates

    @property
    def log_start_offset(self) -> int: ...
    @property
    def leader_epochs(self) -> LeaderEpochs: ...

    def reset_to(self, offset: int) -> None: ...


class Appender:
    """Appends to one log, as leader and as follower. Owned by its `Log`."""

    __slots__ = (
        "_clock",
        "_clock_trusted",
        "_compact",
        "_health",
        "_index_interval",
        "_log",
        "_store",
        "gaps_to",
        "newest",
        "rules",
        "sequence_gaps",
    )

    def __init__(
        self, log: ExtendedLog, store: SegmentStore, clock: Clock, health: Health, config: LogConfig
    ) -> None:
        self._log = log
        self._store = store
        self._clock = clock
        self._health = health
        self._clock_trusted = True
        #: the checks of clients' batches
        self.rules: Rules = rules_of(config)
        self._index_interval = config.index_interval_bytes
        self._compact = config.compact
        #: up to here the leader has left out offsets that compaction removed
        self.gaps_to = NO_OFFSET
        #: the last append of a client, if it is small: its offset, its end, its bytes
        self.newest = NOTHING_NEW
        self.sequence_gaps = SequenceGaps(clock)

    def reconfigure(self, config: LogConfig) -> None:
        self.rules = rules_of(config) if self._clock_trusted else rules_without_clock(config)
        self._index_interval = config.index_interval_bytes
        self._compact = config.compact

    def trust_clock(self, trusted: bool, config: LogConfig) -> None:
        """Check timestamps against the wall clock, or accept all of them while the clock is not trusted."""
        if trusted != self._clock_trusted:
            self._clock_trusted = trusted
            self.reconfigure(config)

    def append(
        self,
        batches: memoryview,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked_by: Rules | None = None,
        guard: VerificationGuard | None = None,
    ) -> Appended:
        """Append as the leader: check, write offsets in place, write; all of `batches` or nothing.

        LongWalk if a client's batch takes long to check; `checked_by` has the rules of a check that was done.
        `guard` is the one with which the first batch of a transaction was verified.

        Longer than other functions because this is the hot path: it has every step that all batches need.
        """
        if self._health.offline is not None:
            self._health.check()
        log = self._log
        now_ms = self._clock.now_ms()
        rules = self.rules
        headers = validate(batches, rules, origin, now_ms, checked_by)
        size_sent = len(batches)
        if size_sent > rules.segment_bytes:
            raise RecordListTooLarge(f"{size_sent} bytes at once; segment.bytes is {rules.segment_bytes}")
        base = offset = log.end_offset
        position = 0
        placed: list[_Placed] = []
        for header in headers:
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            marker = None
            if header[PRODUCER_ID] >= 0:
                if header[ATTRIBUTES] & CONTROL_BIT:
                    marker = parse_end_transaction(batches[position : position + size])
                try:
                    past = log.producers.check(header, origin, marker, guard)
                except SequenceGap as gap:
                    self.sequence_gaps.check(gap)
                    past = None
                if past is not None:
                    return Appended(
                        past.first_offset, past.last_offset, past.timestamp, log.log_start_offset, True
                    )
            _STAMP.pack_into(batches, position, offset, header[BATCH_LENGTH], leader_epoch)
            placed.append((header, offset, marker))
            position += size
            offset += header[LAST_OFFSET_DELTA] + 1
        if position != size_sent:
            batches = batches[:position]
        self._write(batches, placed, now_ms)
        # All followers and consumers at the end of the log read it next.
        if position <= _NEWEST_BYTES_MAX and origin is AppendOrigin.CLIENT:
            self.newest = (base, offset, bytes(batches))
        else:
            marker = placed[0][2]
            self.newest = NOTHING_NEW if marker is None else self._with_marker(batches, base, offset, marker)
        if leader_epoch != log.leader_epochs.latest:
            log.leader_epochs.assign(leader_epoch, base)
        append_time_ms = now_ms if rules.log_append_time else -1
        return _appended(Appended, (base, offset - 1, append_time_ms, log.log_start_offset, False))

    def _with_marker(
        self, batches: memoryview, base: int, end: int, marker: EndTransaction
    ) -> tuple[int, int, bytes]:
        """The last append with the COMMIT marker behind it: readers of committed records read both next."""
        first, first_end, kept = self.newest
        if not marker.committed or first_end != base:
            return NOTHING_NEW
        if len(kept) + len(batches) > _NEWEST_BYTES_MAX:
            return NOTHING_NEW
        return (first, end, kept + batches)

    def check_room(self) -> None:
        """Raise StorageError while the directory is full; metadata is appended without this check."""
        if self._health.full is not None:
            self.sequence_gaps.refused()
            raise StorageError(f"the data directory is full: {self._health.full}")

    def append_replicated(self, batches: Buffer, newest_epoch: int | None = None) -> int:
        """Append batches of the leader, with the offsets and epochs that they have.

        With `newest_epoch` only the whole batches before the first of a later epoch, and before a gap that
        compaction does not explain. Returns their bytes. OffsetGap if the first batch is behind such a gap.
        """
        if self._health.offline is not None:
            self._health.check()
        log = self._log
        view = memoryview(batches)
        placed: list[_Placed] = []
        next_offset = log.end_offset
        position = 0
        gaps = False
        for header in check_replicated(view, newest_epoch):
            base = header[BASE_OFFSET]
            if base != next_offset:
                if base < next_offset and (placed or not self._begins_within(header)):
                    raise CorruptMessage(f"a batch at offset {base} cannot follow {next_offset - 1}")
                if base > max(next_offset, self.gaps_to) and newest_epoch is not None and not self._compact:
                    if placed:
                        break
                    raise OffsetGap(next_offset, base)
                gaps = gaps or base > next_offset
            next_offset = base + header[LAST_OFFSET_DELTA] + 1
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            marker = None
            if header[ATTRIBUTES] & CONTROL_BIT and header[PRODUCER_ID] >= 0:
                marker = parse_end_transaction(view[position : position + size])
            placed.append((header, base, marker))
            position += size
        if placed:
            if placed[0][1] < log.end_offset:
                log.reset_to(placed[0][1])
            self._write(view if position == len(view) else view[:position], placed, self._clock.now_ms())
            if gaps:
                with self._health.disk(f"mark gaps in {self._store.path}"):
                    self._store.allow_gaps()
            epochs = log.leader_epochs
            for header, base, _ in placed:
                if header[LEADER_EPOCH] != epochs.latest:
                    epochs.follow(header[LEADER_EPOCH], base, self._base_before(base))
        return position

    def _base_before(self, base: int) -> int:
        """The base offset of the batch before the one at `base`, if that is one of the latest."""
        return max((each for each in self._store.segments.active.recent if each < base), default=NO_OFFSET)

    def _begins_within(self, header: tuple[int, ...]) -> bool:
        """Returns true if the log is empty and starts within a batch: its earlier records were deleted."""
        start, log = header[BASE_OFFSET], self._log
        return start < log.log_start_offset == log.end_offset <= start + header[LAST_OFFSET_DELTA]

    def _write(self, data: Buffer, placed: list[_Placed], now_ms: int) -> None:
        """Write checked batches, then update indexes and producers; an error leaves everything as it was."""
        header, base, _ = placed[-1]
        end = base + header[LAST_OFFSET_DELTA] + 1
        max_timestamp = (
            header[MAX_TIMESTAMP]
            if len(placed) == 1
            else max(header[MAX_TIMESTAMP] for header, _, _ in placed)
        )
        store = self._store
        try:
            if store.must_roll(len(data), end - 1, max_timestamp, now_ms):
                self.roll(placed[0][1], now_ms)
            segment = store.segments.active
            position = segment.append(data)
        except OSError as e:
            self.sequence_gaps.refused()
            raise self._health.failed(e, f"cannot append to {self._store.path}") from e
        log = self._log
        producers = log.producers
        for header, base, marker in placed:
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            segment.index(
                position, size, base + header[LAST_OFFSET_DELTA], header[MAX_TIMESTAMP], self._index_interval
            )
            segment.recent[base] = position
            if header[PRODUCER_ID] >= 0 and (marker is not None or not header[ATTRIBUTES] & CONTROL_BIT):
                completed = producers.apply(header, base, marker)
                if completed is not None and completed.aborted:
                    self._index_aborted(segment, completed)
            position += size
        log.end_offset = producers.end_offset = end

    def _index_aborted(self, segment: Segment, completed: CompletedTransaction) -> None:
        stable = self._log.producers.last_stable_after(completed)
        self._store.directory_dirty |= segment.transactions.file is None
        aborted = AbortedTransaction(*completed[:3], stable)
        # The marker is in the log. Without its entry, consumers would read aborted records.
        self._health.write_rest(
            lambda: segment.transactions.add(aborted), f"index an aborted transaction in {self._store.path}"
        )
        self._store.segments.aborted_in_active()

    def roll(self, first_offset: int, now_ms: int) -> None:
        """Start a new segment for `first_offset` and the batches behind it."""
        log = self._log
        self._store.roll(log.end_offset, first_offset, now_ms, log.producers)
