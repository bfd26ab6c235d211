"""Chooses the log to compact next, and runs a compaction from plan to swap.

A log's dirty part starts where the last compaction ended (its checkpoint) and ends before the first segment
that must be left alone: the one being written, the one that holds the last stable offset, or one that is
younger than `min.compaction.lag.ms`. The dirtiest log goes first, by dirty bytes over all bytes; a log whose
dirty part is older than `max.compaction.lag.ms` is due at any ratio.

The event loop's thread runs everything here but the checkpoints. Walks over records run in another process,
syncs in a worker thread. With `cached_only`, ColdPages is raised instead of waiting for a disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from penstock.ports import Files, Workers
from penstock.records.header_fields import MAX_TIMESTAMP
from penstock.storage.checkpoint import format_checked, parse_checkpoint
from penstock.storage.compaction import (
    CompactionPlan,
    CompactionResult,
    LastRecord,
    Source,
    compact,
    compact_copy,
    copy_sources,
)
from penstock.storage.config import FOREVER
from penstock.storage.log import Log
from penstock.storage.lookup import aborted_transactions
from penstock.storage.memory import MemoryFiles
from penstock.storage.producers import ProducerState
from penstock.storage.sealing import check_seals, expect_seals
from penstock.storage.segment import Segment
from penstock.storage.swap import CLEANED
from penstock.storage.swapping import swap_in

__all__ = [
    "CHECKPOINT_FILE",
    "Dirt",
    "Shielded",
    "choose",
    "clean",
    "measure",
    "plan",
    "read_checkpoint",
    "write_checkpoint",
]

#: Beside a log's segments, so that it goes where they go: up to which offset the log is clean.
CHECKPOINT_FILE: Final = "cleaner-offset-checkpoint"
#: memory of one key: a 16-byte id, an offset, and their share of a dict that doubles as it grows.
KEY_BYTES: Final = 240


K = TypeVar("K")
#: runs a coroutine to its end, also if its caller is cancelled meanwhile
Shielded: TypeAlias = Callable[[Coroutine[Any, Any, bool]], Awaitable[bool]]


class Dirt(NamedTuple):
    """How much of a log there is to compact."""

    log: Log
    first_dirty_offset: int
    #: base offset of the first segment that must not be compacted
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    #: how long the oldest of it waits for compaction; 0 if the topic sets no `max.compaction.lag.ms`
    lag_ms: int

    @property
    def overdue(self) -> bool:
        """Whether `max.compaction.lag.ms` has passed for some of it."""
        return self.lag_ms > self.log.config.max_compaction_lag_ms

    @property
    def ratio(self) -> float:
        return self.dirty_bytes / (self.clean_bytes + self.dirty_bytes) if self.dirty_bytes else 0.0

    @property
    def due(self) -> bool:
        if not self.dirty_bytes:
            return False
        return self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


def choose(measured: Iterable[tuple[K, Dirt]]) -> tuple[K, Dirt] | None:
    """The dirtiest of the compacted logs that is due; None if none is."""
    return max((found for found in measured if found[1].due), key=lambda found: found[1].ratio, default=None)


def measure(log: Log, checkpoint: int | None, now_ms: int, *, cached_only: bool = False) -> Dirt:
    """The part of a log to compact; `checkpoint` is the end of its compacted part, None if not known."""
    start = log.log_start_offset
    # A checkpoint outside of the log belongs to data that is gone.
    first_dirty = checkpoint if checkpoint is not None and start <= checkpoint <= log.end_offset else start
    dirty = [segment for segment in log.segments.since(first_dirty) if segment is not log.segments.active]
    end_offset = max(first_dirty, _uncleanable_from(log, dirty, now_ms, cached_only))
    dirty = [segment for segment in dirty if segment.base_offset < end_offset]
    dirty_bytes = sum(segment.size for segment in dirty)
    total_bytes = sum(segment.size for segment in log.segments if segment.base_offset < end_offset)
    lag_ms = _lag_ms(log, dirty, now_ms, cached_only)
    return Dirt(log, first_dirty, end_offset, total_bytes - dirty_bytes, dirty_bytes, lag_ms)


def _uncleanable_from(log: Log, dirty: list[Segment], now_ms: int, cached_only: bool) -> int:
    """Base offset of the first segment that is written to, undecided or too young."""
    undecided = log.segments.holding(log.last_stable_offset).base_offset
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms <= 0:
        return undecided
    young = (
        segment.base_offset for segment in dirty if _max_timestamp(segment, cached_only) > now_ms - lag_ms
    )
    return min(undecided, next(young, undecided))


def _lag_ms(log: Log, dirty: list[Segment], now_ms: int, cached_only: bool) -> int:
    if log.config.max_compaction_lag_ms >= FOREVER:
        return 0
    firsts = (_first_timestamp(segment, cached_only) for segment in dirty if segment.size)
    return max((now_ms - first for first in firsts if first > 0), default=0)


def _max_timestamp(segment: Segment, cached_only: bool) -> int:
    timestamp = segment.max_timestamp(cached_only)
    # The segment remembers it; nothing that was opened for it has to stay open.
    segment.release()
    return timestamp


def _first_timestamp(segment: Segment, cached_only: bool) -> int:
    timestamp = segment.first_timestamp
    if timestamp is None:
        _, header = next(segment.scan(0, cached_only))
        timestamp = segment.first_timestamp = header[MAX_TIMESTAMP]
        segment.release()
    return timestamp


def plan(dirt: Dirt, now_ms: int, dedupe_buffer_bytes: int, *, cached_only: bool = False) -> CompactionPlan:
    """The plan that compacts `dirt` with about `dedupe_buffer_bytes` of memory for keys."""
    log, config = dirt.log, dirt.log.config
    sources = tuple(
        Source(segment.base_offset, segment.size)
        for segment in log.segments
        if segment.base_offset < dirt.end_offset
    )
    return CompactionPlan(
        directory=log.path,
        owner=log.owner,
        sources=sources,
        first_dirty_offset=dirt.first_dirty_offset,
        end_offset=dirt.end_offset,
        now_ms=now_ms,
        delete_retention_ms=config.delete_retention_ms,
        segment_bytes=config.segment_bytes,
        segment_index_bytes=config.segment_index_bytes,
        index_interval_bytes=config.index_interval_bytes,
        aborted=tuple(
            aborted_transactions(log.segments, sources[0].base_offset, dirt.end_offset, cached_only)
        ),
        producers={state.producer_id: _last_record(state) for state in log.producers.states.values()},
        keys_max=dedupe_buffer_bytes // KEY_BYTES,
    )


def _last_record(state: ProducerState) -> LastRecord:
    return LastRecord(state.batches[-1].last_offset if state.batches else -1, state.epoch)


async def clean(
    log: Log,
    compaction: CompactionPlan,
    files: Files,
    workers: Workers,
    wanted: Callable[[], bool] = lambda: True,
    shielded: Shielded = lambda swapping: swapping,
) -> CompactionResult | None:
    """Compact `log` as planned and swap the result in; None if the log has changed too much meanwhile.

    OtherSegment if a segment is of another log: its records must not be mixed with those of this one.

    `wanted` returns false once another log has replaced this one. The swap runs in `shielded`; the compaction
    before it may be cancelled.
    """
    expected = [(each.base_offset, each.size, each.expected_seal) for each in log.segments]
    try:
        await workers.in_thread(check_seals, files, log.path, expected[: len(compaction.sources)])
        result = await _compact(compaction, files, workers)
    except OSError:
        if not (wanted() and files.is_dir(log.path)):
            return None
        # The partial result takes space on a disk that may be full.
        await workers.in_thread(log.swap(()).abandon)
        raise
    if not wanted():
        return None
    bases = [source.base_offset for source in result.replaced]
    swap = log.swap(bases)
    if not _still_there(log, result):
        await workers.in_thread(swap.abandon)
        return None
    is_swapped = await shielded(
        swap_in(log, swap, bases, result.segments, workers, lambda: wanted() and _still_there(log, result))
    )
    if not is_swapped:
        return None
    expect_seals(log.segments, result.seals)
    return result


async def _compact(compaction: CompactionPlan, files: Files, workers: Workers) -> CompactionResult:
    if not isinstance(files, MemoryFiles):
        return await workers.in_process(compact, files, compaction)
    # Another process cannot read this memory: it gets a copy of the segments and returns the new ones.
    result, made = await workers.in_process(compact_copy, copy_sources(files, compaction), compaction)
    directory = f"{compaction.directory}/{CLEANED}"
    if files.is_dir(directory):
        files.rmtree(directory)
    files.makedirs(directory)
    for name, content in made.items():
        files.write_atomic(f"{directory}/{name}", content)
    return result


def _still_there(log: Log, result: CompactionResult) -> bool:
    """Returns true if the segments that `result` replaces are still there: retention may have been faster."""
    sealed = [segment for segment in log.segments if segment is not log.segments.active]
    oldest = sealed[: len(result.replaced)]
    return [Source(segment.base_offset, segment.size) for segment in oldest] == list(result.replaced)


def read_checkpoint(files: Files, log_path: str) -> int | None:
    """Up to which offset a log is clean; None if the file is missing, ValueError if it is damaged.

    All is dirty then. Runs in a worker thread, as `write_checkpoint` does.
    """
    try:
        (entry,) = parse_checkpoint(files.read(f"{log_path}/{CHECKPOINT_FILE}"))
    except FileNotFoundError:
        return None
    return int(entry)


def write_checkpoint(files: Files, log_path: str, clean_until: int) -> None:
    files.write_atomic(f"{log_path}/{CHECKPOINT_FILE}", format_checked([str(clean_until)]))
