"""Processes the samples of one shard's GPUs in one batch: the stateful stages, in one task.

A shard's state is a few columns of numbers. `advance` is a pure function of it, of the batch's rows and of
the watermark; the order in which rows arrive does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.pipeline import admission, rollups
from penstock.telemetry.pipeline.admission import Pending, pending_from_table, pending_table
from penstock.telemetry.pipeline.columns import gpu_of, series_of
from penstock.telemetry.pipeline.gpus import GPUS, gpus_of, number_gpus
from penstock.telemetry.pipeline.rollups import (
    Counters,
    Rollup,
    no_counters,
    rollup_from_tables,
    rollup_tables,
)
from penstock.telemetry.pipeline.shard_rows import dead_letter_rows, rollup_rows, sample_rows
from penstock.telemetry.pipeline.tables import TEXT, encoded

__all__ = ["HOUR_MS", "MINUTE_MS", "ROWS", "Counts", "Outcome", "ShardState", "advance", "close_all"]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
_TEXTS: Final = ("hostname", "device", "model", "workload", "job", "pod", "namespace", "reason", "topic")
#: The rows of `validate`, as they arrive.
ROWS: Final = pa.schema(
    [
        ("gpu_id", TEXT),
        ("field", pa.int32()),
        ("at", pa.int64()),
        ("value", pa.float64()),
        *((name, TEXT) for name in _TEXTS),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("raw", pa.binary()),
    ]
)
#: A watermark that is behind the end of every window.
_FOREVER_MS: Final = 1 << 53
_PLACE: Final = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
_COUNTERS: Final = pa.schema([("series", pa.int64()), ("at", pa.int64()), ("value", pa.float64())])


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of a shard. A GPU's number is its row in `gpus` and never changes."""

    gpus: Any = field(default_factory=GPUS.empty_table)
    #: samples whose window of ten seconds is open
    pending: Pending = field(default_factory=dict)
    counters: Counters = field(default_factory=no_counters)
    minute: Rollup | None = None
    hour: Rollup | None = None

    def tables(self, before: ShardState) -> dict[str, Any]:
        """The state as named tables, for keeping, without what is the same as `before`."""
        tables = {
            "gpus": self.gpus,
            "pending": pending_table(self.pending),
            "counters": pa.table([*self.counters], schema=_COUNTERS),
        }
        for name in ("minute", "hour"):
            rollup = getattr(self, name)
            if rollup is not getattr(before, name):
                tables[name], tables[f"{name}_sketch"] = rollup_tables(rollup)
        return tables

    @classmethod
    def of(cls, tables: dict[str, Any]) -> ShardState:
        """From tables of this batch or of those before it, as `tables` has named them."""
        kept = {
            name: rollup_from_tables(tables[name], tables[f"{name}_sketch"])
            for name in ("minute", "hour")
            if name in tables
        }
        return cls(
            gpus_of(tables["gpus"]),
            pending_from_table(tables["pending"]),
            Counters(*(tables["counters"][name].to_numpy() for name in _COUNTERS.names)),
            **kept,
        )


class Counts(NamedTuple):
    """Where a batch's rows have gone. `consumed` is counted apart, so that the sum proves something."""

    consumed: int
    valid: int
    dead_lettered: int
    duplicates: int
    late: int
    #: the newest sample that was taken; 0 if none was
    newest_ms: int

    def check(self) -> None:
        accounted = self.valid + self.dead_lettered + self.duplicates + self.late
        assert accounted == self.consumed, (
            f"{self.consumed - accounted} of {self.consumed} rows are not accounted for"
        )


class Outcome(NamedTuple):
    """The result of a batch: the next state, rows by table, the accepted samples, and counts."""

    state: ShardState
    rows: dict[str, Any]
    taken: Any
    counts: Counts


def advance(state: ShardState, batch: Any, watermark_ms: int, read_at_ms: int) -> Outcome:
    """One batch further. `batch` has the columns of ROWS."""
    batch = _in_place_order(batch.unify_dictionaries().combine_chunks())
    is_sample = pc.is_null(batch["reason"])
    samples, refused = batch.filter(is_sample), batch.filter(pc.invert(is_sample))
    gpus, numbers = number_gpus(state.gpus, samples)
    series = series_of(numbers, samples["field"].to_numpy().astype(np.int64))
    at, value = samples["at"].to_numpy(), samples["value"].to_numpy()
    late_before = np.maximum(gpus["closed"].to_numpy()[numbers], admission.closed_before(watermark_ms))
    admitted = admission.admit(series, at, value, state.pending, late_before)
    taken, late = samples.filter(pa.array(admitted.taken)), samples.filter(pa.array(admitted.late))
    counts = Counts(
        consumed=len(batch),
        valid=len(taken),
        dead_lettered=len(refused),
        duplicates=int((~admitted.taken & ~admitted.late).sum()),
        late=len(late),
        newest_ms=pc.max(taken["at"]).as_py() or 0,
    )
    counts.check()
    closed, rolled = _close_windows(state, gpus, admitted.pending, watermark_ms)
    dead = [dead_letter_rows(refused, read_at_ms), dead_letter_rows(late, read_at_ms, "late")]
    rows = {"samples": sample_rows(taken), "dead_letters": pa.concat_tables(dead), **rolled}
    return Outcome(closed, rows, taken, counts)


def close_all(state: ShardState) -> Outcome:
    """The rollups of all windows that are open. A GPU's later samples for windows of its own are late."""
    closed_ms = state.gpus["closed"].to_numpy().copy()
    for window in state.pending.values():
        np.maximum.at(closed_ms, gpu_of(window.series), window.start + admission.WINDOW_MS)
    place = GPUS.get_field_index("closed")
    gpus = state.gpus.set_column(place, GPUS.field(place), pa.array(closed_ms))
    after, rows = _close_windows(state, gpus, state.pending, _FOREVER_MS)
    rows["dead_letters"] = encoded("dead_letters").empty_table()
    return Outcome(after, rows, ROWS.empty_table(), Counts(0, 0, 0, 0, 0, 0))


def _in_place_order(batch: Any) -> Any:
    """Rows in order of topic, partition and offset, so that every attempt gives the same result."""
    topic = batch["topic"].combine_chunks()
    keys = (topic.indices.to_numpy(), batch["partition"].to_numpy(), batch["offset"].to_numpy())
    is_ordered, is_same = True, np.ones(max(0, len(batch) - 1), dtype=bool)
    for key in keys:
        step = np.diff(key)
        is_ordered &= not bool((is_same & (step < 0)).any())
        is_same &= step == 0
    # One topic is the rule, and its name then needs no comparing.
    if is_ordered and len(topic.dictionary) <= 1:
        return batch
    # Arrow does not sort by texts that are encoded.
    places = batch.select([name for name, _ in _PLACE]).set_column(0, "topic", topic.cast(pa.string()))
    return batch.take(pc.sort_indices(places, sort_keys=_PLACE))


def _close_windows(
    state: ShardState, gpus: Any, pending: Pending, watermark_ms: int
) -> tuple[ShardState, dict[str, Any]]:
    closed, still_open = admission.close(pending, watermark_ms)
    tens, counters = [], state.counters
    for window in closed:
        ten, counters = rollups.summarise(window, counters)
        tens.append(ten)
    # A window is complete when all that it is made of has closed.
    done_ms = admission.closed_before(watermark_ms)
    minutes, minute = rollups.roll_up(state.minute, tens, MINUTE_MS, done_ms)
    hours, hour = rollups.roll_up(state.hour, minutes, HOUR_MS, done_ms)
    rows = {
        "rollups_10s": rollup_rows(tens, gpus),
        "rollups_1m": rollup_rows(minutes, gpus),
        "rollups_1h": rollup_rows(hours, gpus),
    }
    return ShardState(gpus, still_open, counters, minute, hour), rows
