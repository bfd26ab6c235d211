"""The telemetry of one GPU, page by page, as samples or as windows.

Rows are in order of (time, field), which is unique for a GPU. A cursor names the row after which a page
begins. So the rows at the time of the first page come exactly once, even if rows are added meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.queries.gpus import ALL, Only
from penstock.telemetry.queries.reader import TableReader, time_column
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, ROLLUPS, SAMPLES, Level, Span, milliseconds

__all__ = ["RESOLUTIONS", "Page", "Place", "Resolution", "Sample", "Window", "pick_resolution", "read_page"]


@dataclass(frozen=True, slots=True)
class Resolution:
    """A resolution: its table, and the longest time range for which it is sensible."""

    name: str
    level: Level
    #: the default for time ranges up to this length
    picked_ms: int
    #: and longer ones than this never
    most_ms: int
    #: rows per scan step: about the rows of one file or a few
    slice_ms: int


_ENDLESS: Final = 1 << 62
_HOURS, _MINUTES, _TENS = ROLLUPS
#: finest first
RESOLUTIONS: Final = {
    each.name: each
    for each in (
        Resolution("raw", SAMPLES, HOUR_MS, DAY_MS, HOUR_MS // 6),
        Resolution("10s", _TENS, 12 * HOUR_MS, 14 * DAY_MS, HOUR_MS),
        Resolution("1m", _MINUTES, 7 * DAY_MS, 92 * DAY_MS, 6 * HOUR_MS),
        Resolution("1h", _HOURS, _ENDLESS, _ENDLESS, 14 * DAY_MS),
    )
}


class Place(NamedTuple):
    """A row's place in the order."""

    at_ms: int
    field: int


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of one metric."""

    timestamp: datetime
    metric: str
    unit: str
    value: float
    workload: str | None
    job: str | None
    pod: str | None


@dataclass(frozen=True, slots=True)
class Window:
    """The statistics of a metric in a window that starts at `timestamp`.

    Quantiles are those of gauges, within 1 %. `increase`, in the metric's unit and over `covered_s` seconds,
    is that of counters. A window that the end of a backfill has split has neither quantiles nor a last value.
    """

    timestamp: datetime
    metric: str
    unit: str
    count: int
    min: float
    max: float
    mean: float
    last: float | None
    p50: float | None
    p95: float | None
    increase: float | None
    covered_s: float | None
    workload: str | None
    job: str | None
    pod: str | None


class Page(NamedTuple):
    """Some rows, and the place of the last one if more rows follow."""

    rows: list[Sample | Window]
    last: Place | None


def pick_resolution(span: Span, samples: Span | None = None) -> Resolution:
    """The finest resolution that covers this time range in a bounded number of rows.

    A range that begins before the samples, because older ones have expired, gets windows.
    """
    is_over = samples is not None and span.start < samples.start
    fine = list(RESOLUTIONS.values())[is_over:]
    return next(each for each in fine if span.width <= each.picked_ms)


def read_page(
    reader: TableReader,
    gpu_id: str,
    resolution: Resolution,
    span: Span,
    fields: Sequence[int],
    limit: int,
    after: Place | None = None,
    only: Only = ALL,
) -> Page:
    """The first `limit` rows of a span that come after a place; of all fields if none is named."""
    table = resolution.level.table
    at = time_column(table)
    own = Sample if table == SAMPLES.table else Window
    columns = [name for name in own.__dataclass_fields__ if name not in ("timestamp", "unit")]
    is_wanted = (pc.field("gpu_id") == gpu_id) & only.where()
    if fields:
        is_wanted &= pc.field("field").isin(list(fields))
    begun = span if after is None else span._replace(start=max(span.start, after.at_ms))
    rows: list[dict[str, Any]] = []
    for part in _slices(reader, resolution, begun):
        found = reader.read(table, part, [at, "field", *columns], is_wanted)
        found = _rejoined(found, at).sort_by([(at, "ascending"), ("field", "ascending")])
        if after is not None:
            found = found.filter(_comes_after(at, after))
        rows += found.slice(0, limit + 1 - len(rows)).to_pylist()
        if len(rows) > limit:
            break
    page: list[Sample | Window] = [
        own(timestamp=row[at], unit=FIELDS[row["field"]].unit, **{name: row[name] for name in columns})
        for row in rows[:limit]
    ]
    last = None
    if len(rows) > limit:
        row = rows[limit - 1]
        last = Place(milliseconds(row[at]), row["field"])
    return Page(page, last)


def _slices(reader: TableReader, resolution: Resolution, span: Span) -> Iterator[Span]:
    """The part of a span in which there is anything, bit by bit: a page needs the first few."""
    extent = reader.extent(resolution.level.table)
    if extent is None:
        return
    inner = span.within(extent)
    for start in range(inner.start, inner.end, resolution.slice_ms):
        yield Span(start, min(start + resolution.slice_ms, inner.end))


def _rejoined(rows: Any, at: str) -> Any:
    """Rows of `read_page` with those of one window as one: a backfill that ends in a window splits it."""
    keys = [at, "field"]
    if at == time_column(SAMPLES.table) or rows.group_by(keys).aggregate([]).num_rows == len(rows):
        return rows
    weighted = pc.multiply(rows["mean"], rows["count"].cast(pa.float64()))
    texts = ("metric", "workload", "job", "pod")
    sums = [(name, "sum") for name in ("count", "weighted", "increase", "covered_s")]
    edges = [("min", "min"), *((name, "max") for name in ("max", "last", "p50", "p95", *texts))]
    merged = (
        rows.append_column("weighted", weighted).group_by(keys).aggregate([("count", "count"), *sums, *edges])
    )
    merged = merged.rename_columns([*keys, "parts", *(name for name, _ in (*sums, *edges))])
    is_split, nothing = pc.field("parts") > 1, pa.scalar(None, pa.float64())
    columns = {name: pc.field(name) for name in rows.column_names}
    columns |= {name: pc.if_else(is_split, nothing, pc.field(name)) for name in ("last", "p50", "p95")}
    columns["mean"] = pc.divide(pc.field("weighted"), pc.field("count").cast(pa.float64()))
    return ds.dataset(merged).to_table(columns=columns)


def _comes_after(at: str, place: Place) -> Any:
    moment = pa.scalar(place.at_ms * 1000, pa.timestamp("us", "UTC"))
    return (pc.field(at) > moment) | ((pc.field(at) == moment) & (pc.field("field") > place.field))
