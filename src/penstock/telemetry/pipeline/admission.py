"""Stage 2: which samples are new. A sample is taken once, and only while its window is open.

`pending` holds the samples that were taken and whose window of ten seconds is still open: it is what a window
is made of when it closes, and it is all that is needed to know a duplicate. A sample for a window that has
closed is late, whether it was seen before or not, so nothing is ever counted twice.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.telemetry.pipeline.sketch import Ints

__all__ = ["PENDING", "WINDOW_MS", "Admission", "admit", "close", "series_of"]

WINDOW_MS: Final = 10_000
_FIELD_BITS: Final = 16
PENDING: Final = pa.schema([("series", pa.int64()), ("at", pa.int64()), ("value", pa.float64())])
_ORDER: Final = [("series", "ascending"), ("at", "ascending")]


class Admission(NamedTuple):
    """What became of each row, as masks, and all samples whose window is open."""

    taken: Any
    late: Any
    pending: Any


def series_of(gpu: Ints, field: Ints) -> Ints:
    """One number for a field of a GPU of this shard."""
    return (gpu << _FIELD_BITS) | (field & ((1 << _FIELD_BITS) - 1))


def gpu_of(series: Ints) -> Ints:
    return series >> _FIELD_BITS


def field_of(series: Ints) -> Ints:
    # The low bits are a signed number: Penstock's own fields are below zero.
    return (series & ((1 << _FIELD_BITS) - 1)).astype(np.int16).astype(np.int64)


def closed_before(watermark_ms: int) -> int:
    """Samples from before this are in windows that have closed."""
    return watermark_ms // WINDOW_MS * WINDOW_MS


def admit(rows: Any, pending: Any, watermark_ms: int) -> Admission:
    """Of equal samples the one with the lowest place in `rows` is taken, unless one is pending already."""
    late = rows["at"].to_numpy() < closed_before(watermark_ms)
    # Pending ones first: a stable sort then leaves the first of equals at the front.
    series = np.concatenate([pending["series"].to_numpy(), rows["series"].to_numpy()])
    at = np.concatenate([pending["at"].to_numpy(), rows["at"].to_numpy()])
    order = np.lexsort((at, series))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (series[order][1:] != series[order][:-1]) | (at[order][1:] != at[order][:-1])
    first = np.empty(len(order), dtype=bool)
    first[order] = is_first
    taken = first[len(pending) :] & ~late
    added = rows.filter(pa.array(taken)).select(PENDING.names).cast(PENDING)
    merged = pa.concat_tables([pending, added]).combine_chunks().sort_by(_ORDER)
    return Admission(taken, late, merged)


def close(pending: Any, watermark_ms: int) -> tuple[Any, Any]:
    """The samples of windows that the watermark has passed, and those of the others; both in order."""
    is_closed = pending["at"].to_numpy() < closed_before(watermark_ms)
    return pending.filter(pa.array(is_closed)), pending.filter(pa.array(~is_closed))
