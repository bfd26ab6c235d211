"""Whole columns at once: what the stages of a task have in common.

A GPU belongs to one of `VIRTUAL_SHARDS` by the hash of its id, for ever. Its number has the virtual shard in
the high bits and its place among the shard's GPUs in the low bits, so a number is the same whichever task
processes the shard. A series is a field of a GPU, in one number. Rows of equal keys are brought together by
one sort and then taken by their first places, so that nothing is done row by row.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias
from zlib import crc32

import numpy as np
import numpy.typing as npt

from penstock.telemetry.fields import FIELDS, Kind

__all__ = [
    "EVERYTHING",
    "VIRTUAL_SHARDS",
    "Floats",
    "Ints",
    "Mask",
    "ShardRange",
    "field_of",
    "first_number",
    "firsts",
    "gpu_of",
    "is_counter",
    "is_power",
    "range_of_task",
    "series_of",
    "shard_of_gpu",
    "shard_of_number",
    "task_of_shard",
]

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]

#: the unit in which state is divided among tasks; part of the format of the state
VIRTUAL_SHARDS: Final = 1024
#: GPUs in one virtual shard. A series and the 14 bits of a time or a bucket fit into 63 bits.
_PLACE_BITS: Final = 20
_FIELD_BITS: Final = 16
_FIELD_MASK: Final = (1 << _FIELD_BITS) - 1
_IS_COUNTER: Final = np.zeros(1 << _FIELD_BITS, dtype=bool)
_IS_COUNTER[[each.id & _FIELD_MASK for each in FIELDS.values() if each.kind is Kind.COUNTER]] = True
#: POWER_USAGE and POWER_USAGE_INSTANT
_IS_POWER: Final = np.zeros(1 << _FIELD_BITS, dtype=bool)
_IS_POWER[[155, 157]] = True


class ShardRange(NamedTuple):
    """Consecutive virtual shards, from `first` to before `end`."""

    first: int
    end: int

    def overlaps(self, other: ShardRange) -> bool:
        return self.first < other.end and other.first < self.end


EVERYTHING: Final = ShardRange(0, VIRTUAL_SHARDS)


def shard_of_gpu(gpu_id: str) -> int:
    """The virtual shard of a GPU."""
    return crc32(gpu_id.encode()) % VIRTUAL_SHARDS


def shard_of_number(number: Ints) -> Ints:
    """The virtual shards of GPUs by their numbers."""
    return number >> _PLACE_BITS


def first_number(shard: int) -> int:
    """The number of the first GPU of a virtual shard."""
    return shard << _PLACE_BITS


def task_of_shard(shard: int, tasks: int) -> int:
    """The task that processes a virtual shard, of so many tasks."""
    return shard * tasks // VIRTUAL_SHARDS


def range_of_task(task: int, tasks: int) -> ShardRange:
    """The virtual shards of a task: those that `task_of_shard` assigns to it."""
    return ShardRange(-(-task * VIRTUAL_SHARDS // tasks), -(-(task + 1) * VIRTUAL_SHARDS // tasks))


def series_of(gpu: Ints, field: Ints) -> Ints:
    """One number for a field of a GPU."""
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
