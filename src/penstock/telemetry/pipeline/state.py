"""The files of the state: which of them a task reads, and what it adds to them.

State is divided by virtual shards. A task has a range of them and writes files for its range. A later task
with another range reads the files whose ranges overlap its own, and takes its rows: so the number of tasks
may change from batch to batch.

Files are never changed, and state that is large is appended. A batch adds one file with its samples of open
windows, in which each window is a record batch of its own; a file goes when all of its windows have closed.
An unfinished minute is the windows of ten seconds that have closed in it, an unfinished hour its minutes.
Only what a batch adds to or closes is read. State with one row per GPU is rewritten: the GPUs in every batch,
with what changed lately about their workloads, counters when a window closes, the detectors' state when there
are samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.jobs.storage import Store
from penstock.telemetry.pipeline.admission import (
    Pending,
    Window,
    closed_before,
    joined,
    piece_from_rows,
    piece_rows,
    shards_of_keys,
)
from penstock.telemetry.pipeline.columns import Ints, ShardRange, gpu_of, shard_of_gpu, shard_of_number
from penstock.telemetry.pipeline.gpus import GPUS
from penstock.telemetry.pipeline.history import HISTORY
from penstock.telemetry.pipeline.rollups import (
    Rollup,
    counters_from_table,
    counters_table,
    merge,
    no_counters,
    rollup_from_tables,
    rollup_tables,
)
from penstock.telemetry.pipeline.shard import HOUR_MS, MINUTE_MS, Outcome, ShardState
from penstock.telemetry.pipeline.sketch import shards_of_buckets

__all__ = ["Kept", "Segment", "StateFiles", "files_of", "inherited"]

_WIDTHS: Final = {"minute": MINUTE_MS, "hour": HOUR_MS}
_SUFFIX: Final = ".arrow"
_SKETCH: Final = "-sketch.arrow"
#: A window with more parts than this is put together: an hour would otherwise have sixty.
_PARTS_MAX: Final = 8


class Segment(NamedTuple):
    """One file, as far as it belongs to a range of virtual shards."""

    path: str
    first: int
    end: int
    #: whether the file has nothing of other virtual shards
    is_whole: bool = True
    #: of windows: the start of each, in the order of the file's record batches, CLOSED for those that have
    #: closed; of a rollup: its start
    starts: Sequence[int] = ()

    @property
    def shards(self) -> ShardRange:
        return ShardRange(self.first, self.end)

    def within(self, shards: ShardRange) -> Segment:
        """The part of it that belongs to these virtual shards."""
        first, end = max(self.first, shards.first), min(self.end, shards.end)
        is_whole = self.is_whole and (first, end) == (self.first, self.end)
        return self._replace(first=first, end=end, is_whole=is_whole)


#: in the place of a window's start
CLOSED: Final = -1
#: By kind of state, its files in order of time.
Kept: TypeAlias = dict[str, list[Segment]]


def inherited(kept: Iterable[Kept], shards: ShardRange) -> Kept:
    """The files of these virtual shards, whichever tasks have written them."""
    own: Kept = {}
    for part in kept:
        for name, segments in part.items():
            overlapping = [each.within(shards) for each in segments if each.shards.overlaps(shards)]
            own.setdefault(name, []).extend(overlapping)
    return own


def files_of(kept: Iterable[Kept]) -> set[str]:
    """The names of all files."""
    found = set()
    for part in kept:
        for name, segments in part.items():
            for each in segments:
                found.add(each.path)
                if name in _WIDTHS:
                    found.add(_sketch_path(each.path))
    return found


def _sketch_path(path: str) -> str:
    return path.removesuffix(_SUFFIX) + _SKETCH


def _gpu_shards(rows: Any) -> Ints:
    return np.fromiter((shard_of_gpu(gpu_id) for gpu_id in rows["gpu_id"].to_pylist()), np.int64, len(rows))


def _series_shards(rows: Any) -> Ints:
    return shard_of_number(gpu_of(rows["series"].to_numpy()))


@dataclass(frozen=True)
class StateFiles:
    """The state of one task's virtual shards, before a batch."""

    store: Store
    shards: ShardRange
    kept: Kept = field(default_factory=dict)

    def load(self, starts: Iterable[int] | None, watermark_ms: int) -> ShardState:
        """The state as far as a batch needs it: that has samples for windows of these starts.

        None stands for all windows.
        """
        edge = closed_before(watermark_ms)
        known = {start for each in self.kept.get("pending", ()) for start in each.starts} - {CLOSED}
        needed = known if starts is None else known & {*starts, *(start for start in known if start < edge)}
        closes = any(start < edge for start in needed)
        counters = self._table("counters", _series_shards) if closes else None
        minute, hour = ([*self._read_parts(self._over(name, edge))] for name in _WIDTHS)
        return ShardState(
            self._gpus(),
            self._windows(needed),
            no_counters() if counters is None else counters_from_table(counters),
            minute,
            hour,
            self._history(),
        )

    def rules(self) -> Any | None:
        """The detectors' state; None if there is none."""
        return self._table("rules", _gpu_shards)

    def keep(
        self, before: ShardState, outcome: Outcome, rules: Any | None, watermark_ms: int, name: str
    ) -> Kept:
        """Write what has changed since `before`, under names that begin with `name`."""
        after, edge = outcome.state, closed_before(watermark_ms)
        kept: Kept = {**self.kept, "gpus": [self._write(f"{name}-gpus", after.gpus)]}
        if after.counters is not before.counters:
            kept["counters"] = [self._write(f"{name}-counters", counters_table(after.counters))]
        if rules is not None:
            kept["rules"] = [self._write(f"{name}-rules", rules)]
        has_history = len(after.history) > 0
        kept["history"] = [self._write(f"{name}-history", after.history)] if has_history else []
        kept["pending"] = self._still_open(edge)
        if outcome.added:
            kept["pending"].append(self._write_windows(f"{name}-pending", outcome.added))
        for width in _WIDTHS:
            over = self._over(width, edge)
            own = [each for each in self.kept.get(width, ()) if each not in over]
            kept[width] = self._appended(own, getattr(after, width), f"{name}-{width}")
        return kept

    def _still_open(self, edge: int) -> list[Segment]:
        """The files with at least one window that is open."""
        marked = [
            each._replace(starts=[CLOSED if start < edge else start for start in each.starts])
            for each in self.kept.get("pending", ())
        ]
        return [each for each in marked if any(start != CLOSED for start in each.starts)]

    def _appended(self, own: Sequence[Segment], parts: list[Rollup], name: str) -> list[Segment]:
        segments = list(own)
        if parts and len(segments) >= _PARTS_MAX:
            whole = [*self._read_parts(segments), *parts]
            parts, segments = [merge(whole[0].start, whole)], []
        return segments + [self._write_rollup(name, part) for part in parts]

    def _gpus(self) -> Any:
        found = self._table("gpus", lambda rows: shard_of_number(rows["number"].to_numpy()))
        if found is None:
            return GPUS.empty_table()
        # The state of an older version lacks columns: they are null until the next sample of a GPU.
        found = pa.concat_tables([GPUS.empty_table(), found], promote_options="default").select(GPUS.names)
        return found.sort_by([("number", "ascending")]).combine_chunks()

    def _history(self) -> Any:
        found = self._table("history", lambda rows: shard_of_number(rows["number"].to_numpy()))
        if found is None:
            return HISTORY.empty_table()
        return found.sort_by([("number", "ascending"), ("until", "ascending")]).combine_chunks()

    def _windows(self, needed: set[int]) -> Pending:
        pieces: dict[int, list[Window]] = {}
        for segment in self.kept.get("pending", ()):
            wanted = [number for number, start in enumerate(segment.starts) if start in needed]
            rows = self.store.read_batches(segment.path, wanted) if wanted else []
            for number, batch in zip(wanted, rows, strict=True):
                own = self._own(segment, batch, lambda rows: shards_of_keys(rows["key"].to_numpy()))
                if len(own):
                    start = segment.starts[number]
                    pieces.setdefault(start, []).append(piece_from_rows(start, own))
        return {start: joined(own) for start, own in pieces.items()}

    def _over(self, name: str, done_ms: int) -> list[Segment]:
        """The parts of an open window that ends by `done_ms`."""
        width_ms = _WIDTHS[name]
        segments = self.kept.get(name, [])
        return [each for each in segments if each.starts[0] // width_ms * width_ms + width_ms <= done_ms]

    def _read_parts(self, segments: Iterable[Segment]) -> Iterable[Rollup]:
        for each in segments:
            summaries = self._own(each, self.store.read_table(each.path), _series_shards)
            sketch = self.store.read_table(_sketch_path(each.path))
            sketch = self._own(each, sketch, lambda rows: shards_of_buckets(rows["key"].to_numpy()))
            if len(summaries):
                yield rollup_from_tables(each.starts[0], summaries, sketch)

    def _table(self, name: str, shards_of: Callable[[Any], Ints]) -> Any | None:
        segments = self.kept.get(name, [])
        parts = [self._own(each, self.store.read_table(each.path), shards_of) for each in segments]
        return pa.concat_tables(parts, promote_options="default").combine_chunks() if parts else None

    def _own(self, segment: Segment, rows: Any, shards_of: Callable[[Any], Ints]) -> Any:
        """The rows that belong to this task, of those in the file."""
        if segment.is_whole:
            return rows
        shards = shards_of(rows)
        return rows.filter(pa.array((shards >= segment.first) & (shards < segment.end)))

    def _write(self, name: str, table: Any, starts: Sequence[int] = ()) -> Segment:
        path = f"{name}{_SUFFIX}"
        self.store.write_table(path, table)
        return Segment(path, *self.shards, starts=[*starts])

    def _write_windows(self, name: str, windows: Mapping[int, Window]) -> Segment:
        path, starts = f"{name}{_SUFFIX}", sorted(windows)
        self.store.write_batches(path, [piece_rows(windows[start]) for start in starts])
        return Segment(path, *self.shards, starts=starts)

    def _write_rollup(self, name: str, rollup: Rollup) -> Segment:
        summaries, sketch = rollup_tables(rollup)
        segment = self._write(name, summaries, [rollup.start])
        self.store.write_table(_sketch_path(segment.path), sketch)
        return segment
