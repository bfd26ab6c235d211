"""Whole columns at once: what the stages of a shard have in common.

A series is a field of a GPU, in one number. Rows of equal keys are brought together by one sort and then
taken by their first places, so that nothing is done row by row.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from penstock.telemetry.fields import FIELDS, Kind

__all__ = ["Floats", "Ints", "Mask", "field_of", "firsts", "gpu_of", "is_counter", "is_power", "series_of"]

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

_FIELD_BITS: Final = 16
_FIELD_MASK: Final = (1 << _FIELD_BITS) - 1
_IS_COUNTER: Final = np.zeros(1 << _FIELD_BITS, dtype=bool)
_IS_COUNTER[[each.id & _FIELD_MASK for each in FIELDS.values() if each.kind is Kind.COUNTER]] = True
#: POWER_USAGE and POWER_USAGE_INSTANT
_IS_POWER: Final = np.zeros(1 << _FIELD_BITS, dtype=bool)
_IS_POWER[[155, 157]] = True


def series_of(gpu: Ints, field: Ints) -> Ints:
    """One number for a field of a GPU of this shard."""
    return (gpu << _FIELD_BITS) | (field & _FIELD_MASK)


def gpu_of(series: Ints) -> Ints:
    return series >> _FIELD_BITS


def field_of(series: Ints) -> Ints:
    # The low bits are a signed number: Penstock's own fields are below zero.
    return (series & _FIELD_MASK).astype(np.int16).astype(np.int64)


def is_counter(series: Ints) -> Mask:
    mask: Mask = _IS_COUNTER[series & _FIELD_MASK]
    return mask


def is_power(series: Ints) -> Mask:
    """Fields in watts, which are integrated over time."""
    mask: Mask = _IS_POWER[series & _FIELD_MASK]
    return mask


def firsts(ordered: Ints) -> Ints:
    """Where each new value of `ordered` begins."""
    if not len(ordered):
        return np.empty(0, np.int64)
    return np.concatenate([np.zeros(1, np.int64), np.flatnonzero(ordered[1:] != ordered[:-1]) + 1])
