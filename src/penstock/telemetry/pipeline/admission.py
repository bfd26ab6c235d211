"""Stage 2: which samples are new. A sample is taken once, and only while its window is open.

Open windows hold the samples that were taken for them: it is what a window is made of when it closes, and it
is all that is needed to know a duplicate. A sample for a window that has closed is late, whether it was seen
before or not, so nothing is ever counted twice. A batch touches few of the open windows, and only those are
looked at.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.columns import Floats, Ints, Mask, firsts

__all__ = [
    "WINDOW_MS",
    "Admission",
    "Pending",
    "Window",
    "admit",
    "close",
    "closed_before",
    "pending_from_table",
    "pending_table",
]

WINDOW_MS: Final = 10_000
_TIME_BITS: Final = 14
assert WINDOW_MS <= 1 << _TIME_BITS
_PENDING: Final = pa.schema([("start", pa.int64()), ("key", pa.int64()), ("value", pa.float64())])


class Window(NamedTuple):
    """The samples of one window of ten seconds, in order of series and time."""

    start: int
    #: the series, and in the low bits the milliseconds since `start`
    key: Ints
    value: Floats

    @property
    def series(self) -> Ints:
        return self.key >> _TIME_BITS

    @property
    def at(self) -> Ints:
        return self.start + (self.key & ((1 << _TIME_BITS) - 1))


#: The open windows by their start.
Pending: TypeAlias = dict[int, Window]


class Admission(NamedTuple):
    """The verdict of each sample, as masks, and all samples whose window is open."""

    taken: Mask
    late: Mask
    pending: Pending


def closed_before(watermark_ms: int) -> int:
    """Samples from before this are in windows that have closed."""
    return watermark_ms // WINDOW_MS * WINDOW_MS


def admit(series: Ints, at: Ints, value: Floats, pending: Pending, late_before: Ints | int) -> Admission:
    """Of equal samples the first is taken, unless one is pending already.

    `late_before` says up to when windows have closed: for all samples, or for each.
    """
    late = at < late_before
    start = at // WINDOW_MS * WINDOW_MS
    key = (series << _TIME_BITS) | (at - start)
    taken = np.zeros(len(at), dtype=bool)
    grown = dict(pending)
    order = np.argsort(start, kind="stable")
    order = order[~late[order]]
    for rows in np.split(order, firsts(start[order])[1:]) if len(order) else ():
        window = int(start[rows[0]])
        before = grown.get(window, Window(window, np.empty(0, np.int64), np.empty(0)))
        grown[window], taken[rows] = _join(before, key[rows], value[rows])
    return Admission(taken, late, grown)


def _join(window: Window, key: Ints, value: Floats) -> tuple[Window, Mask]:
    """The window with what is new in it, and which that is."""
    keys, values = np.concatenate([window.key, key]), np.concatenate([window.value, value])
    order = np.argsort(keys)
    # The sort leaves equal keys in any order; of each, the lowest place counts.
    first = np.minimum.reduceat(order, firsts(keys[order]))
    is_first = np.zeros(len(keys), dtype=bool)
    is_first[first] = True
    return Window(window.start, keys[first], values[first]), is_first[len(window.key) :]


def close(pending: Pending, watermark_ms: int) -> tuple[list[Window], Pending]:
    """The windows that the watermark has passed, in order of time, and the others."""
    edge = closed_before(watermark_ms)
    closed = [pending[start] for start in sorted(pending) if start < edge]
    return closed, {start: window for start, window in pending.items() if start >= edge}


def pending_table(pending: Pending) -> Any:
    """For keeping: one table, however many windows are open."""
    windows = [pending[start] for start in sorted(pending)]
    sizes = [len(window.key) for window in windows]
    columns = [
        np.repeat(np.array([window.start for window in windows], np.int64), sizes),
        np.concatenate([window.key for window in windows] or [np.empty(0, np.int64)]),
        np.concatenate([window.value for window in windows] or [np.empty(0)]),
    ]
    return pa.table(columns, schema=_PENDING)


def pending_from_table(table: Any) -> Pending:
    start, key, value = (table[name].to_numpy() for name in _PENDING.names)
    bounds = [*firsts(start).tolist(), len(start)]
    return {
        int(start[low]): Window(int(start[low]), key[low:high], value[low:high])
        for low, high in pairwise(bounds)
    }
