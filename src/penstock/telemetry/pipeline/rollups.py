"""Stage 3: windows of ten seconds from samples, of a minute from those, of an hour from those.

A window's summary merges with others of its series, so the longer ones need no samples. Counters are followed
from sample to sample, in order and across windows: what a counter gained, and over how long. One that falls
has started again at zero. Power is followed in the same way: its increase is the energy between two samples,
in joules, by their mean. Windows close in order of time, so of each longer width at most one is open. Until
it closes, it is kept as the parts that it is made of.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.admission import Window
from penstock.telemetry.pipeline.columns import Floats, Ints, firsts, is_counter, is_power
from penstock.telemetry.pipeline.sketch import Sketch, merge_sketches, quantiles, sketch_of

__all__ = [
    "Counters",
    "Rollup",
    "Summaries",
    "counters_from_table",
    "counters_table",
    "merge",
    "no_counters",
    "quantile_columns",
    "roll_up",
    "rollup_from_tables",
    "rollup_tables",
    "summarise",
]


class Counters(NamedTuple):
    """The last sample of each counter, and of power, in a window that has closed, in order of series."""

    series: Ints
    at: Ints
    value: Floats


class Summaries(NamedTuple):
    """The samples of each series as columns, in order of series."""

    series: Ints
    n: Ints
    min: Floats
    max: Floats
    sum: Floats
    last_at: Ints
    last: Floats
    #: of counters and of power; 0 for all others
    increase: Floats
    covered_ms: Ints


class Rollup(NamedTuple):
    """One window of all series that were measured in it. Those that are not counters have a sketch."""

    start: int
    summaries: Summaries
    sketch: Sketch


Columns = TypeVar("Columns", Counters, Summaries)
_SUMMARY: Final = pa.schema(
    [
        (name, pa.int64() if name in ("series", "n", "last_at", "covered_ms") else pa.float64())
        for name in Summaries._fields
    ]
)
_COUNTERS: Final = pa.schema([("series", pa.int64()), ("at", pa.int64()), ("value", pa.float64())])
#: power is integrated between samples that are no farther apart
_SILENCE_MS: Final = 300_000
_SKETCH: Final = pa.schema([(name, pa.int64()) for name in Sketch._fields])


def no_counters() -> Counters:
    return Counters(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


def summarise(window: Window, before: Counters) -> tuple[Rollup, Counters]:
    """The rollup of a window that closes, and the counters after it."""
    series, at, value = window.series, window.at, window.value
    increase, covered_ms, counters = _follow_counters(series, at, value, before)
    ones = np.ones(len(series), np.int64)
    singles = Summaries(series, ones, value, value, value, at, value, increase, covered_ms)
    is_gauge = ~is_counter(series)
    sketch = sketch_of(series[is_gauge], value[is_gauge])
    return Rollup(window.start, _merge_summaries([singles]), sketch), counters


def _follow_counters(
    series: Ints, at: Ints, value: Floats, before: Counters
) -> tuple[Floats, Ints, Counters]:
    """By sample what it gained since the one before it, and over how long; and the counters after all.

    Samples are in order of series and time. A series' first one has gained nothing yet.
    """
    own = np.flatnonzero(is_counter(series) | is_power(series))
    both = Counters(
        np.concatenate([before.series, series[own]]),
        np.concatenate([before.at, at[own]]),
        np.concatenate([before.value, value[own]]),
    )
    # The rows are in the order of time, so a stable sort by series is one by series and time.
    order = np.argsort(both.series, kind="stable")
    ordered = _taken(both, order)
    first = firsts(ordered.series)
    follows = np.ones(len(order), dtype=bool)
    follows[first] = False
    step = np.diff(ordered.value, prepend=0.0)
    elapsed = np.where(follows, np.diff(ordered.at, prepend=0), 0)
    in_watts = is_power(ordered.series)
    # The power of a GPU during a long silence is unknown.
    elapsed[in_watts & (elapsed > _SILENCE_MS)] = 0
    energy_j = (ordered.value - step / 2) * elapsed / 1000.0
    counted = np.where(step < 0, ordered.value, step)
    gained = np.where(follows, np.where(in_watts, energy_j, counted), 0.0)
    is_new = order >= len(before.series)
    place = own[order[is_new] - len(before.series)]
    increase, covered_ms = np.zeros(len(series)), np.zeros(len(series), dtype=np.int64)
    increase[place], covered_ms[place] = gained[is_new], elapsed[is_new]
    last = _lasts(first, len(order))
    return increase, covered_ms, _taken(ordered, last)


def _taken(columns: Columns, places: Ints) -> Columns:
    """The rows at these places."""
    rows: Any = (column[places] for column in columns)
    return type(columns)(*rows)


def _lasts(first: Ints, size: int) -> Ints:
    return np.append(first, size)[1:] - 1


def _merge_summaries(parts: list[Summaries]) -> Summaries:
    """Parts are in order of time, so that the last value is known, and sums come out alike in every try."""
    whole = Summaries(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))
    order = np.argsort(whole.series, kind="stable")
    ordered = _taken(whole, order)
    first = firsts(ordered.series)
    last = _lasts(first, len(order))
    return Summaries(
        ordered.series[first],
        np.add.reduceat(ordered.n, first),
        np.minimum.reduceat(ordered.min, first),
        np.maximum.reduceat(ordered.max, first),
        np.add.reduceat(ordered.sum, first),
        ordered.last_at[last],
        ordered.last[last],
        np.add.reduceat(ordered.increase, first),
        np.add.reduceat(ordered.covered_ms, first),
    )


def merge(start: int, parts: list[Rollup]) -> Rollup:
    """One window from narrower ones that lie within it, in order of time."""
    summaries = _merge_summaries([part.summaries for part in parts])
    return Rollup(start, summaries, merge_sketches([part.sketch for part in parts]))


def roll_up(
    parts: list[Rollup], narrower: list[Rollup], width_ms: int, done_ms: int
) -> tuple[list[Rollup], list[Rollup]]:
    """Windows of `width_ms` that end by `done_ms`, and the parts of the one that does not yet.

    `parts` are of the window that was open before; they may be left out while it stays open.
    """
    groups: dict[int, list[Rollup]] = {}
    for part in (*parts, *narrower):
        groups.setdefault(part.start // width_ms * width_ms, []).append(part)
    over = [start for start in sorted(groups) if start + width_ms <= done_ms]
    done = [merge(start, groups.pop(start)) for start in over]
    assert len(groups) <= 1, "what is later than this would not have closed"
    return done, next(iter(groups.values()), [])


def quantile_columns(rollup: Rollup, shares: tuple[float, ...]) -> list[Floats]:
    """For each share a column beside `summaries`: NaN for counters, and never beyond what was measured."""
    summaries = rollup.summaries
    has_sketch = ~is_counter(summaries.series)
    columns = []
    for share in shares:
        values = np.full(len(has_sketch), np.nan)
        values[has_sketch] = quantiles(rollup.sketch, share)
        columns.append(np.clip(values, summaries.min, summaries.max))
    return columns


def rollup_tables(rollup: Rollup) -> tuple[Any, Any]:
    """Summaries and sketch, for keeping; the start of the window is kept apart."""
    return pa.table([*rollup.summaries], schema=_SUMMARY), pa.table([*rollup.sketch], schema=_SKETCH)


def rollup_from_tables(start: int, summaries: Any, sketch: Any) -> Rollup:
    return Rollup(
        start,
        Summaries(*(summaries[name].to_numpy() for name in Summaries._fields)),
        Sketch(*(sketch[name].to_numpy() for name in Sketch._fields)),
    )


def counters_table(counters: Counters) -> Any:
    return pa.table([*counters], schema=_COUNTERS)


def counters_from_table(table: Any) -> Counters:
    """In order of series, also from tables of several tasks."""
    found = Counters(*(table[name].to_numpy() for name in _COUNTERS.names))
    return _taken(found, np.argsort(found.series, kind="stable"))
