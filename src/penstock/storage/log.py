"""A partition's log: what every topic, and every piece of cluster state, is stored in.

Batches are appended at the end and never change; `LogState` has what else a log is.

The event loop's thread owns a log. Work that waits for a disk goes to worker threads as objects that touch
files only: `FlushPlan.sync`, `ColdPages.warm`, `Removal.delete`. Reads and lookups stay in the loop's thread:
told to use only what is cached, they raise ColdPages where they would wait, and are tried again once those
are warm. Every error of a disk is a StorageError.

Cost is per batch and does not grow with the log: the hot path is `append` and `read`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from penstock.model.errors import (
    ApiError,
    CorruptMessage,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordListTooLarge,
    StorageError,
)
from penstock.ports import Buffer, Clock, FileRange, Files, Rng
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
from penstock.storage.health import Health
from penstock.storage.loading import ClosedLog, load
from penstock.storage.log_state import NOTHING_NEW, LogState
from penstock.storage.lookup import DatedBatch, aborted_transactions, batch_at_or_after, latest_batch
from penstock.storage.producers import AppendOrigin, CompletedTransaction
from penstock.storage.scan import ColdPages, CorruptLog
from penstock.storage.segment import Segment
from penstock.storage.segments import SegmentCache
from penstock.storage.store import SegmentStore
from penstock.storage.transactions import AbortedTransaction
from penstock.storage.validation import LongWalk, Rules, check_replicated, validate

__all__ = ["AppendOrigin", "Appended", "Log", "LongWalk"]

#: base offset, length, leader epoch: what an append writes into a batch
_STAMP: Final = Struct(">qii")
#: as much of what was appended last is kept in memory
_NEWEST_BYTES_MAX: Final = 2 << 10
#: a batch to write: its header's fields, the offset it gets, and what it ends if it is a marker
_Placed: TypeAlias = tuple[tuple[int, ...], int, EndTransaction | None]


class Appended(NamedTuple):
    """Where batches went."""

    base_offset: int
    last_offset: int
    #: -1 unless the log stamps batches with the time of their append
    append_time_ms: int
    log_start_offset: int
    #: whether the batch had been appended before; nothing was written
    duplicate: bool


#: `Appended(…)` without the call of a Python function, for what every Produce makes
_appended: Final = tuple.__new__


class Log(LogState):
    """The log in one directory."""

    __slots__ = ()

    @classmethod
    def open(
        cls,
        files: Files,
        path: str,
        config: LogConfig,
        clock: Clock,
        *,
        clean: bool,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        start_recorded: bool = False,
        closed: ClosedLog | None = None,
        rng: Rng | None = None,
        health: Health | None = None,
        cache: SegmentCache | None = None,
    ) -> Log:
        """Open or create the log in `path`; unless closed cleanly, recover from `recovery_point` on.

        With `start_recorded`, no segment beyond `log_start_offset` was ever removed: a missing one is damage.
        `closed` is what the log was when it was closed in good order.
        """
        health = health or Health()
        health.check()
        try:
            loaded = load(
                files,
                path,
                config,
                clock,
                clean,
                recovery_point,
                log_start_offset,
                start_recorded,
                closed,
            )
        except OSError as e:
            raise health.path_failed(e, f"cannot open {path}") from e
        store = SegmentStore(files, path, loaded.segments, cache or SegmentCache(), rng)
        store.directory_dirty = loaded.changed
        store.unsynced = loaded.unsynced
        return cls(store, config, clock, loaded, health)

    # -- appending

    def append(
        self,
        batches: memoryview,
        leader_epoch: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        checked_by: Rules | None = None,
    ) -> Appended:
        """Append as the leader: check, stamp in place, write; all of `batches` or nothing.

        A client's batch that takes long to check is a `LongWalk`; `checked_by` then says that it was done.
        """
        if self._health.offline is not None:
            self._health.check()
        now_ms = self._clock.now_ms()
        rules = self._rules
        headers = validate(batches, rules, origin, now_ms, checked_by)
        size_sent = len(batches)
        if size_sent > rules.segment_bytes:
            raise RecordListTooLarge(f"{size_sent} bytes at once; segment.bytes is {rules.segment_bytes}")
        base = offset = self.end_offset
        position = 0
        placed: list[_Placed] = []
        for header in headers:
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            marker = None
            if header[PRODUCER_ID] >= 0:
                if header[ATTRIBUTES] & CONTROL_BIT:
                    marker = parse_end_transaction(batches[position : position + size])
                try:
                    past = self.producers.check(header, origin, marker)
                except OutOfOrderSequence as e:
                    raise self._out_of_order(e) from e
                if past is not None:
                    return Appended(
                        past.first_offset, past.last_offset, past.timestamp, self.log_start_offset, True
                    )
            _STAMP.pack_into(batches, position, offset, header[BATCH_LENGTH], leader_epoch)
            placed.append((header, offset, marker))
            position += size
            offset += header[LAST_OFFSET_DELTA] + 1
        if position != size_sent:
            batches = batches[:position]
        self._write(batches, placed, now_ms)
        # Everyone who follows the log wants it next.
        is_kept = position <= _NEWEST_BYTES_MAX and origin is AppendOrigin.CLIENT
        self._newest = (base, offset, bytes(batches)) if is_kept else NOTHING_NEW
        if leader_epoch != self.leader_epochs.latest:
            self.leader_epochs.assign(leader_epoch, base)
        append_time_ms = now_ms if rules.log_append_time else -1
        return _appended(Appended, (base, offset - 1, append_time_ms, self.log_start_offset, False))

    def check_room(self) -> None:
        """Before all but metadata: refuse it while the directory is full, and what comes behind it alike."""
        if self._health.full is not None:
            self._refused_at = self.end_offset
            raise StorageError(f"the data directory is full: {self._health.full}")

    def _out_of_order(self, error: OutOfOrderSequence) -> ApiError:
        """A gap behind a batch that the disk refused is no loss: the producer sends both again, in order."""
        if self._refused_at == self.end_offset:
            return StorageError(f"{error}: an earlier batch was refused for lack of space in {self.path}")
        return error

    def append_replicated(self, batches: Buffer, newest_epoch: int | None = None) -> int:
        """Append what the leader has: offsets and epochs as they are, continuing this log.

        With `newest_epoch` only the whole batches before the first of a later epoch. Returns their bytes.
        """
        if self._health.offline is not None:
            self._health.check()
        view = memoryview(batches)
        placed: list[_Placed] = []
        next_offset = self.end_offset
        position = 0
        gaps = False
        for header in check_replicated(view, newest_epoch):
            base = header[BASE_OFFSET]
            if base != next_offset:
                if base < next_offset and (placed or not self._begins_within(header)):
                    raise CorruptMessage(f"a batch at offset {base} cannot follow {next_offset - 1}")
                gaps = gaps or base > next_offset
            next_offset = base + header[LAST_OFFSET_DELTA] + 1
            size = header[BATCH_LENGTH] + LOG_OVERHEAD
            marker = None
            if header[ATTRIBUTES] & CONTROL_BIT and header[PRODUCER_ID] >= 0:
                marker = parse_end_transaction(view[position : position + size])
            placed.append((header, base, marker))
            position += size
        if placed:
            if placed[0][1] < self.end_offset:
                self.reset_to(placed[0][1])
            self._write(view if position == len(view) else view[:position], placed, self._clock.now_ms())
            if gaps:
                with self._disk("mark gaps in"):
                    self._store.allow_gaps()
            epochs = self.leader_epochs
            for header, base, _ in placed:
                if header[LEADER_EPOCH] != epochs.latest:
                    epochs.assign(header[LEADER_EPOCH], base)
        return position

    def _begins_within(self, header: tuple[int, ...]) -> bool:
        """Whether we are empty, and a batch holds our start: what lies before has been deleted there."""
        return (
            header[BASE_OFFSET]
            < self.log_start_offset
            == self.end_offset
            <= header[BASE_OFFSET] + header[LAST_OFFSET_DELTA]
        )

    def _write(self, data: Buffer, placed: list[_Placed], now_ms: int) -> None:
        """Write checked batches, then tell indexes and producers; an error leaves everything as it was."""
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
                self._roll(placed[0][1], now_ms)
            segment = self.segments.active
            position = segment.append(data)
        except OSError as e:
            self._refused_at = self.end_offset
            raise self._health.failed(e, f"cannot append to {self.path}") from e
        producers = self.producers
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
        self.end_offset = producers.end_offset = end

    def _index_aborted(self, segment: Segment, completed: CompletedTransaction) -> None:
        stable = self.producers.last_stable_after(completed)
        self._store.directory_dirty |= segment.transactions.file is None
        try:
            segment.transactions.add(AbortedTransaction(*completed[:3], stable))
        except OSError as e:
            # The marker is in the log, and without its entry readers would see aborted records.
            raise self._health.left_half_done(e, f"cannot index an aborted transaction in {self.path}") from e
        self.segments.aborted_in_active()

    # -- reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        *,
        upper: int,
        at_least_one: bool = True,
        cached_only: bool = False,
    ) -> FileRange | None:
        """Batches of one segment, from the one that holds `offset` to before `upper`, up to `max_bytes`.

        The last batch may be cut, unless it is a recent one. The first never is: where it is larger than
        `max_bytes`, it is returned with `at_least_one`, and nothing is without. None if nothing is there or
        fits. With `cached_only`, `ColdPages` is raised where the range would have to come from the disk.
        Bytes that are known to be damaged are a `CorruptLog`.
        """
        end_offset = self.end_offset
        if offset < self.log_start_offset or offset > end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not within [{self.log_start_offset}, {end_offset}]")
        if self._health.offline is not None:
            self._health.check()
        if offset >= upper:
            return None
        damaged_from = upper
        if self.recovery.corruption:
            damaged_from = min(upper, self.recovery.sound_end(offset))
        try:
            found = self._store.read(offset, max_bytes, damaged_from, end_offset, at_least_one, cached_only)
        except OSError as e:
            self.file_lost |= isinstance(e, FileNotFoundError)
            raise self._health.failed(e, f"cannot read {self.path}") from e
        if found is None and damaged_from < upper and at_least_one:
            # Compaction left nothing before the damage: a reader must not wait there, nor skip it.
            self.recovery.sound_end(damaged_from)
        return found

    def newest(self, offset: int) -> bytes | None:
        """All from `offset` to the end of the log, where that is what a client appended last, and little.

        No transaction ends in it, so readers of committed records have to be told of none that was aborted.
        """
        first, end, batches = self._newest
        if first != offset or end != self.end_offset or offset < self.log_start_offset:
            return None
        if self._health.offline is not None:
            self._health.check()
        return batches

    def bytes_between(self, offset: int, upper: int) -> int | None:
        """Size of the batches that `read` finds in [offset, upper) without a limit; None if that is a lot.

        That is: in other segments than the last, or not in memory.
        """
        if offset >= upper:
            return 0
        try:
            return self._store.bytes_between(offset, upper, self.end_offset)
        except (OSError, ColdPages, CorruptLog):
            return None

    def offset_behind(self, offset: int, found: FileRange) -> int:
        """An offset at or behind the end of what a read from `offset` found; a near one, by the index."""
        return self._store.offset_behind(offset, found, self.end_offset)

    def aborted_transactions(
        self, start: int, upper: int, *, cached_only: bool = False
    ) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions that reach into [start, upper)."""
        with self._disk("read"):
            found = aborted_transactions(self.segments, start, upper, cached_only)
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    def batch_at_or_after(
        self, timestamp: int, start: int, *, cached_only: bool = False
    ) -> DatedBatch | None:
        """Where the first record from `start` on may be whose timestamp is `timestamp` or later."""
        with self._disk("read"):
            return batch_at_or_after(self.segments, timestamp, start, cached_only)

    def latest_batch(self, start: int, *, cached_only: bool = False) -> DatedBatch | None:
        """Where the first record from `start` on may be that has the largest timestamp of the log."""
        with self._disk("read"):
            return latest_batch(self.segments, start, cached_only)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest epoch at or below `epoch`, the offset behind its last record), (-1, -1) if unknown."""
        return self.leader_epochs.end_offset(epoch, self.end_offset)
