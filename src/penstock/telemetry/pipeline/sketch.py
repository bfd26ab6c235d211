"""Quantiles of many series at once, from counts by bucket.

Buckets grow with the value, so a quantile is within `ACCURACY` of the true one; they are the same for all, so
sketches of parts merge by adding up, in any order, and lose nothing. A sketch of all series is one flat table
of (series, start, bucket, n), and a series that hardly moves has one or two rows in it.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["ACCURACY", "SKETCH", "Floats", "Ints", "bucket_of", "merge_sketches", "quantiles"]

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

ACCURACY: Final = 0.01
_GAMMA: Final = (1 + ACCURACY) / (1 - ACCURACY)
_LOG_GAMMA: Final = math.log(_GAMMA)
#: What is nearer to zero is zero.
_SMALLEST: Final = 1e-6
SKETCH: Final = pa.schema(
    [("series", pa.int64()), ("start", pa.int64()), ("bucket", pa.int64()), ("n", pa.int64())]
)


def bucket_of(values: Floats) -> Ints:
    """The bucket of each value: 0 for zero, positive above, negative below."""
    size = np.abs(values)
    exponent = np.ceil(np.log(np.maximum(size, _SMALLEST) / _SMALLEST) / _LOG_GAMMA).astype(np.int64) + 1
    return np.where(size < _SMALLEST, 0, np.where(values < 0, -exponent, exponent)).astype(np.int64)


def _value_of(buckets: Ints) -> Floats:
    size = _SMALLEST * np.exp((np.abs(buckets) - 1) * _LOG_GAMMA) * 2 / (1 + _GAMMA)
    return np.where(buckets == 0, 0.0, np.where(buckets < 0, -size, size))


def merge_sketches(sketches: Any, width_ms: int) -> Any:
    """Counts by windows of `width_ms`, in order of series, window and bucket."""
    start = sketches["start"].to_numpy() // width_ms * width_ms
    wider = sketches.set_column(1, "start", pa.array(start))
    merged = wider.group_by(["series", "start", "bucket"], use_threads=False).aggregate([("n", "sum")])
    ordered = [("series", "ascending"), ("start", "ascending"), ("bucket", "ascending")]
    return merged.rename_columns(["series", "start", "bucket", "n"]).sort_by(ordered).cast(SKETCH)


def quantiles(sketch: Any, share: float) -> Floats:
    """For each window in `sketch`, in its order, the value below which `share` of it lies."""
    if not len(sketch):
        return np.empty(0)
    series, start = sketch["series"].to_numpy(), sketch["start"].to_numpy()
    is_next = (series[1:] != series[:-1]) | (start[1:] != start[:-1])
    first = np.concatenate([[0], np.flatnonzero(is_next) + 1])
    n = sketch["n"].to_numpy()
    total = np.add.reduceat(n, first)
    below = np.concatenate([[0], np.cumsum(total)[:-1]])
    # One running count over all windows finds the bucket of each window's rank in one search.
    hit = np.searchsorted(np.cumsum(n), below + np.floor(share * (total - 1)), side="right")
    return _value_of(sketch["bucket"].to_numpy()[hit])
