"""Reads the pipeline's tables: snapshots that are cheap to refresh, and scans of the necessary files.

A snapshot is Delta's list of files with the times in each, so files of other times are never opened. Scans
read only the requested columns, and aggregates run over a stream: memory depends on the result, not on the
table.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.acero as acero
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from penstock.jobs.storage import file_system
from penstock.telemetry.pipeline.tables import DAY, TABLES
from penstock.telemetry.queries.spans import HOUR_MS, ROLLUPS, SAMPLES, Level, Piece, Span, cover

__all__ = ["Measure", "TableReader", "time_column"]

_INSTANT: Final = pa.timestamp("us", "UTC")
_DAY_US: Final = 86_400_000_000
_BATCHES: Final = "batches"
_NEWEST_MS: Final = 60_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of an aggregate: `how` (sum, min, max) over `of`, an expression of the table's columns."""

    name: str
    how: str
    of: Any


@dataclass(slots=True)
class _Snapshot:
    """The files of one version of a table, and the first and last time in each, in microseconds."""

    table: DeltaTable
    checked_at: float
    version: int = -1
    paths: list[str] = field(default_factory=list)
    low: Any = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    high: Any = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


class TableReader:
    """Reads the tables below one place, a directory or an object store's URL. Safe to use from many threads.

    A table that is not there reads as an empty one: the pipeline makes each with its first row.
    """

    def __init__(
        self,
        tables: str,
        max_age_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self.place = (tables if "://" in tables else str(Path(tables).absolute())).rstrip("/")
        self._storage_options = storage_options
        self._files, self._root = file_system(self.place, storage_options)
        self._max_age_s = max_age_s
        self._clock = clock
        self._snapshots: dict[str, _Snapshot] = {}
        self._lock = Lock()

    def exists(self) -> bool:
        """Whether the pipeline has made any table here."""
        return any(self._snapshot(table) is not None for table in ("batches", SAMPLES.table))

    def extent(self, table: str = SAMPLES.table) -> Span | None:
        """From the first to the last time in a table; None if it has no rows."""
        snapshot = self._snapshot(table)
        if snapshot is None or not snapshot.paths:
            return None
        return Span(int(snapshot.low.min()) // 1000, int(snapshot.high.max()) // 1000 + 1)

    def history(self) -> Span | None:
        """From the first sample, or the first hour whose samples have expired, to the last sample."""
        samples, hours = self.extent(), self.extent(ROLLUPS[0].table)
        if samples is None or hours is None or hours.start + HOUR_MS > samples.start:
            return samples
        return Span(hours.start, samples.end)

    def cover(self, span: Span, levels: Sequence[Level] = ROLLUPS) -> list[Piece]:
        """The span by the widest windows that are complete, and that samples do not begin in."""
        ready = dict.fromkeys((level.table for level in levels), self.watermark())
        extent = self.extent(ROLLUPS[-1].table)
        return cover(span, levels, ready, 0 if extent is None else extent.start)

    def watermark(self) -> int:
        """Windows that end by this time are complete; 0 if there is none.

        Wider windows may have rows before: a `backfill` ends with rows of the hours that it has a part of.
        """
        extent = self.extent(_BATCHES)
        if extent is None:
            return 0
        # Watermarks never fall, so the newest batches have the newest one.
        newest = Span(extent.end - _NEWEST_MS, extent.end)
        found = pc.max(self.read(_BATCHES, newest, ["watermark"])["watermark"].cast(pa.int64())).as_py()
        return 0 if found is None else int(found) // 1000

    def read(self, table: str, span: Span, columns: list[str], where: Any = None) -> Any:
        """The rows of a span, in no order."""
        wanted = _within(table, span) if where is None else _within(table, span) & where
        return self._scan(table, span, lambda dataset: dataset.to_table(columns=columns, filter=wanted))

    def aggregate(self, piece: Piece, keys: dict[str, Any], measures: Sequence[Measure], where: Any) -> Any:
        """One row for each combination of `keys`, which are expressions by name, as measures are."""
        table = piece.level.table
        wanted = _within(table, piece.span) & where
        # The scan takes from this which columns to read; the projection itself is a step of its own.
        columns = {**keys, **{measure.name: measure.of for measure in measures}}
        sums = [(each.name, f"hash_{each.how}", None, each.name) for each in measures]

        def plan(dataset: Any) -> Any:
            steps = [
                acero.Declaration("scan", acero.ScanNodeOptions(dataset, columns=columns, filter=wanted)),
                acero.Declaration("filter", acero.FilterNodeOptions(wanted)),
                acero.Declaration("project", acero.ProjectNodeOptions(list(columns.values()), list(columns))),
                acero.Declaration("aggregate", acero.AggregateNodeOptions(sums, list(keys))),
            ]
            return acero.Declaration.from_sequence(steps).to_table()

        return self._scan(table, piece.span, plan)

    def _scan(self, table: str, span: Span, scan: Callable[[Any], T]) -> T:
        try:
            return scan(self._dataset(table, span))
        except FileNotFoundError:
            # The table was created again, or vacuumed past our snapshot: retry once.
            with self._lock:
                self._snapshots.pop(table, None)
            return scan(self._dataset(table, span))

    def _dataset(self, table: str, span: Span) -> Any:
        snapshot = self._snapshot(table)
        schema = TABLES[table]
        if snapshot is None:
            return ds.dataset(schema.empty_table())
        overlaps = (snapshot.low < span.end * 1000) & (snapshot.high >= span.start * 1000)
        paths = [f"{self._root}/{table}/{snapshot.paths[place]}" for place in np.flatnonzero(overlaps)]
        return ds.FileSystemDataset.from_paths(
            paths, schema=schema, format=ds.ParquetFileFormat(), filesystem=self._files
        )

    def _snapshot(self, table: str) -> _Snapshot | None:
        """The table as it was at most `max_age_s` ago."""
        with self._lock:
            known, now = self._snapshots.get(table), self._clock()
            if known is not None and now - known.checked_at < self._max_age_s:
                return known
            if known is None:
                try:
                    known = _Snapshot(self._open(table), now)
                except TableNotFoundError:
                    return None
            else:
                known.table.update_incremental()
            renewed = _renewed(known, table, now)
            self._snapshots[table] = renewed
            return renewed

    def _open(self, table: str) -> DeltaTable:
        return DeltaTable(f"{self.place}/{table}", storage_options=self._storage_options)


def _renewed(known: _Snapshot, table: str, now: float) -> _Snapshot:
    """The newest snapshot of the table; an older snapshot stays valid for queries that use it."""
    version = known.table.version()
    if version == known.version:
        known.checked_at = now
        return known
    added = pa.table(known.table.get_add_actions(flatten=True))
    if not len(added):
        return _Snapshot(known.table, now, version)
    day = added[f"partition.{DAY}"].cast(pa.date32()).cast(pa.int32()).cast(pa.int64()).to_numpy() * _DAY_US
    low, high = (
        _times(added, f"{edge}.{time_column(table)}", otherwise)
        for edge, otherwise in (("min", day), ("max", day + _DAY_US - 1))
    )
    return _Snapshot(known.table, now, version, added["path"].to_pylist(), low, high)


def _times(added: Any, column: str, otherwise: Any) -> Any:
    """Times of files in microseconds; of those without statistics, the edge of their day."""
    if column not in added.column_names:
        return otherwise
    instants = added[column].cast(_INSTANT).cast(pa.int64())
    return pc.coalesce(instants, pa.array(otherwise)).to_numpy()


def time_column(table: str) -> str:
    """The column that says when: a table's first."""
    return str(TABLES[table].names[0])


def _within(table: str, span: Span) -> Any:
    """The rows of a span."""
    at = pc.field(time_column(table))
    return (at >= pa.scalar(span.start * 1000, _INSTANT)) & (at < pa.scalar(span.end * 1000, _INSTANT))
