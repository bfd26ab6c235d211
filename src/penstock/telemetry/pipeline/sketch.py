"""Quantiles of many series at once, from counts by bucket.

Buckets grow with the value, so a quantile is within `ACCURACY` of the true one; they are the same for all, so
sketches of parts merge by adding up, in any order, and lose nothing. A sketch of all series is one flat table
of (series and bucket, n), and a series that hardly moves has one or two rows in it.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from penstock.telemetry.pipeline.columns import Floats, Ints, firsts, gpu_of, shard_of_number

__all__ = ["ACCURACY", "Sketch", "merge_sketches", "quantiles", "shards_of_buckets", "sketch_of"]

ACCURACY: Final = 0.01
_GAMMA: Final = (1 + ACCURACY) / (1 - ACCURACY)
_LOG_GAMMA: Final = math.log(_GAMMA)
#: Values nearer to zero count as zero.
_SMALLEST: Final = 1e-6
_BUCKET_BITS: Final = 14
_BUCKET_MAX: Final = (1 << (_BUCKET_BITS - 1)) - 1


class Sketch(NamedTuple):
    """How many values of each series are in which bucket, in order of both."""

    #: the series, and in the low bits the bucket: 0 for zero, positive above, negative below
    key: Ints
    n: Ints

    @property
    def series(self) -> Ints:
        return self.key >> _BUCKET_BITS


def shards_of_buckets(key: Ints) -> Ints:
    """The virtual shards of a sketch's keys."""
    return shard_of_number(gpu_of(key >> _BUCKET_BITS))


def sketch_of(series: Ints, values: Floats) -> Sketch:
    """The sketch of single values."""
    key = (series << _BUCKET_BITS) | (_bucket_of(values) + _BUCKET_MAX)
    return merge_sketches([Sketch(key, np.ones(len(key), np.int64))])


def _bucket_of(values: Floats) -> Ints:
    size = np.abs(values)
    exponent = np.ceil(np.log(np.maximum(size, _SMALLEST) / _SMALLEST) / _LOG_GAMMA).astype(np.int64) + 1
    # 1e64 and more: no metric gets there, and it must not reach into the series.
    exponent = np.minimum(exponent, _BUCKET_MAX)
    return np.where(size < _SMALLEST, 0, np.where(values < 0, -exponent, exponent)).astype(np.int64)


def _value_of(buckets: Ints) -> Floats:
    size = _SMALLEST * np.exp((np.abs(buckets) - 1) * _LOG_GAMMA) * 2 / (1 + _GAMMA)
    return np.where(buckets == 0, 0.0, np.where(buckets < 0, -size, size))


def merge_sketches(sketches: list[Sketch]) -> Sketch:
    key = np.concatenate([each.key for each in sketches])
    order = np.argsort(key)
    key = key[order]
    first = firsts(key)
    return Sketch(key[first], np.add.reduceat(np.concatenate([each.n for each in sketches])[order], first))


def quantiles(sketch: Sketch, share: float) -> Floats:
    """For each series in `sketch`, in its order, the value below which `share` of it lies."""
    if not len(sketch.key):
        return np.empty(0)
    total = np.add.reduceat(sketch.n, firsts(sketch.series))
    below = np.concatenate([[0], np.cumsum(total)[:-1]])
    # One running count over all series finds the bucket of each one's rank in one search.
    hit = np.searchsorted(np.cumsum(sketch.n), below + np.floor(share * (total - 1)), side="right")
    return _value_of((sketch.key[hit] & ((1 << _BUCKET_BITS) - 1)) - _BUCKET_MAX)
