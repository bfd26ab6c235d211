"""Stage 3: windows of ten seconds from samples, of a minute from those, of an hour from those.

A window's summary merges with others of its series, so the longer ones need no samples. Counters are followed
from sample to sample, in order and across windows: what a counter gained, and over how long. One that falls
has started again at zero.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.telemetry.fields import FIELDS, Kind
from penstock.telemetry.pipeline.admission import PENDING, field_of
from penstock.telemetry.pipeline.sketch import SKETCH, bucket_of, merge_sketches, quantiles

__all__ = [
    "SUMMARY",
    "Rollup",
    "empty_rollup",
    "follow_counters",
    "merge",
    "quantile_columns",
    "split",
    "summarise",
]

SUMMARY: Final = pa.schema(
    [
        ("series", pa.int64()),
        ("start", pa.int64()),
        ("count", pa.int64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("sum", pa.float64()),
        ("last_at", pa.int64()),
        ("last", pa.float64()),
        ("increase", pa.float64()),
        ("covered_ms", pa.int64()),
    ]
)
_MERGES: Final = [
    ("count", "sum"),
    ("min", "min"),
    ("max", "max"),
    ("sum", "sum"),
    ("last_at", "last"),
    ("last", "last"),
    ("increase", "sum"),
    ("covered_ms", "sum"),
]
_IN_TIME: Final = [("series", "ascending"), ("last_at", "ascending")]
_COUNTERS: Final = np.array(sorted(each.id for each in FIELDS.values() if each.kind is Kind.COUNTER))


class Rollup(NamedTuple):
    """Summaries in order of series and window, and the sketches of those that are not counters, likewise."""

    summaries: Any
    sketch: Any


def empty_rollup() -> Rollup:
    return Rollup(SUMMARY.empty_table(), SKETCH.empty_table())


def is_counter(series: Any) -> Any:
    return np.isin(field_of(series), _COUNTERS)


def follow_counters(samples: Any, before: Any) -> tuple[Any, Any]:
    """`samples` with what each gained since the one before it, and the last sample of each counter.

    `before` is what the last call gave; both are in order. A series' first sample has gained nothing yet.
    """
    own = samples.filter(pa.array(is_counter(samples["series"].to_numpy())))
    both = pa.concat_tables([before, own]).combine_chunks()
    series, at, value = (both[name].to_numpy() for name in PENDING.names)
    order = np.lexsort((at, series))
    series, at, value = series[order], at[order], value[order]
    follows = np.zeros(len(order), dtype=bool)
    follows[1:] = series[1:] == series[:-1]
    gained, elapsed = np.zeros(len(order)), np.zeros(len(order), dtype=np.int64)
    step = np.diff(value, prepend=0.0)
    gained[follows] = np.where(step < 0, value, step)[follows]
    elapsed[follows] = np.diff(at, prepend=0)[follows]
    increase, covered = np.zeros(len(samples)), np.zeros(len(samples), dtype=np.int64)
    is_new = order >= len(before)
    place = np.flatnonzero(is_counter(samples["series"].to_numpy()))[order[is_new] - len(before)]
    increase[place], covered[place] = gained[is_new], elapsed[is_new]
    is_last = np.ones(len(order), dtype=bool)
    is_last[:-1] = series[1:] != series[:-1]
    last = pa.table([series[is_last], at[is_last], value[is_last]], schema=PENDING)
    followed = samples.append_column("increase", pa.array(increase))
    return followed.append_column("covered_ms", pa.array(covered)), last


def summarise(samples: Any, width_ms: int) -> Rollup:
    """Windows from samples that `follow_counters` has seen."""
    value, at = samples["value"], samples["at"]
    ones = pa.array(np.ones(len(samples), dtype=np.int64))
    columns = [
        samples["series"],
        at,
        ones,
        value,
        value,
        value,
        at,
        value,
        samples["increase"],
        samples["covered_ms"],
    ]
    gauges = samples.filter(pa.array(~is_counter(samples["series"].to_numpy())))
    buckets = pa.array(bucket_of(gauges["value"].to_numpy()))
    counts = pa.array(np.ones(len(gauges), dtype=np.int64))
    singles = Rollup(
        pa.table(columns, schema=SUMMARY),
        pa.table([gauges["series"], gauges["at"], buckets, counts], schema=SKETCH),
    )
    return merge([singles], width_ms)


def merge(rollups: list[Rollup], width_ms: int) -> Rollup:
    """Windows of `width_ms` from narrower ones, which lie within them."""
    # In order, so that sums of floats are the same in every try.
    ordered = pa.concat_tables([each.summaries for each in rollups]).combine_chunks().sort_by(_IN_TIME)
    start = ordered["start"].to_numpy() // width_ms * width_ms
    grouped = ordered.set_column(1, "start", pa.array(start)).group_by(["series", "start"], use_threads=False)
    summaries = grouped.aggregate(_MERGES).rename_columns(SUMMARY.names).cast(SUMMARY)
    sketches = pa.concat_tables([each.sketch for each in rollups]).combine_chunks()
    by_window = [("series", "ascending"), ("start", "ascending")]
    return Rollup(summaries.sort_by(by_window), merge_sketches(sketches, width_ms))


def split(rollup: Rollup, before_ms: int, width_ms: int) -> tuple[Rollup, Rollup]:
    """Windows that end by `before_ms`, and the others."""

    def parts(table: Any) -> tuple[Any, Any]:
        done = table["start"].to_numpy() + width_ms <= before_ms
        return table.filter(pa.array(done)), table.filter(pa.array(~done))

    summaries, sketches = parts(rollup.summaries), parts(rollup.sketch)
    return Rollup(summaries[0], sketches[0]), Rollup(summaries[1], sketches[1])


def quantile_columns(rollup: Rollup, shares: tuple[float, ...]) -> list[Any]:
    """For each share a column beside `summaries`: null for counters, and never beyond what was measured."""
    has_sketch = ~is_counter(rollup.summaries["series"].to_numpy())
    low, high = rollup.summaries["min"].to_numpy(), rollup.summaries["max"].to_numpy()
    columns = []
    for share in shares:
        values = np.full(len(has_sketch), np.nan)
        values[has_sketch] = quantiles(rollup.sketch, share)
        columns.append(pa.array(np.clip(values, low, high), mask=~has_sketch))
    return columns
