"""Stage 2: which samples are new. A sample is taken once, and only while its window is open.

Open windows hold the samples that were taken for them: it is what a window is made of when it closes, and it
is all that is needed to know a duplicate. A sample for a window that has closed is late, whether it was seen
before or not, so nothing is ever counted twice. A batch touches few of the open windows, and only those are
read: to each it adds a piece, and a window that closes is joined from its pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.columns import Floats, Ints, Mask, firsts, gpu_of, shard_of_number

__all__ = [
    "WINDOW_MS",
    "Admission",
    "Pending",
    "Window",
    "admit",
    "close",
    "closed_before",
    "joined",
    "piece_from_rows",
    "piece_rows",
    "shards_of_keys",
    "start_of",
]

WINDOW_MS: Final = 10_000
_TIME_BITS: Final = 14
assert WINDOW_MS <= 1 << _TIME_BITS
_PIECE: Final = pa.schema([("key", pa.int64()), ("value", pa.float64())])


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
    """The verdict of each sample, as masks, and the open windows that are known here.

    `added` has only the samples that this batch adds to each window.
    """

    taken: Mask
    late: Mask
    pending: Pending
    added: Pending


def start_of(at: Ints) -> Ints:
    """The start of the window of each time."""
    starts: Ints = at // WINDOW_MS * WINDOW_MS
    return starts


def closed_before(watermark_ms: int) -> int:
    """Samples from before this are in windows that have closed."""
    return watermark_ms // WINDOW_MS * WINDOW_MS


def admit(series: Ints, at: Ints, value: Floats, pending: Pending, late_before: Ints | int) -> Admission:
    """Of equal samples the first is taken, unless one is pending already.

    `pending` must have the open windows of these samples, as far as there are any. `late_before` says up to
    when windows have closed: for all samples, or for each.
    """
    late = at < late_before
    start = start_of(at)
    key = (series << _TIME_BITS) | (at - start)
    taken = np.zeros(len(at), dtype=bool)
    grown, added = dict(pending), Pending()
    order = np.argsort(start, kind="stable")
    order = order[~late[order]]
    for rows in np.split(order, firsts(start[order])[1:]) if len(order) else ():
        window = int(start[rows[0]])
        before = grown.get(window, Window(window, np.empty(0, np.int64), np.empty(0)))
        grown[window], is_new = _join(before, key[rows], value[rows])
        taken[rows] = is_new
        if is_new.any():
            added[window] = joined([Window(window, key[rows][is_new], value[rows][is_new])])
    return Admission(taken, late, grown, added)


def joined(pieces: Sequence[Window]) -> Window:
    """One window from pieces that have no sample in common."""
    key = np.concatenate([piece.key for piece in pieces])
    order = np.argsort(key)
    return Window(pieces[0].start, key[order], np.concatenate([piece.value for piece in pieces])[order])


def _join(window: Window, key: Ints, value: Floats) -> tuple[Window, Mask]:
    """The window with what is new in it, and which of the samples that is."""
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


def piece_rows(piece: Window) -> Any:
    """A piece as a record batch, for keeping; its start is kept apart."""
    return pa.record_batch([piece.key, piece.value], schema=_PIECE)


def piece_from_rows(start: int, rows: Any) -> Window:
    return Window(start, rows["key"].to_numpy(), rows["value"].to_numpy())


def shards_of_keys(key: Ints) -> Ints:
    """The virtual shards of a window's keys."""
    return shard_of_number(gpu_of(key >> _TIME_BITS))
