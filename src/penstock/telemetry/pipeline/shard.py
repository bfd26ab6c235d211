"""What happens to the samples of one shard's GPUs in one batch: the stages that need memory, in one task.

A shard's state is a few tables of numbers. `advance` is a pure function of it, of the batch's rows and of the
watermark; the order in which rows arrive does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.pipeline import admission, rollups
from penstock.telemetry.pipeline.admission import PENDING, WINDOW_MS
from penstock.telemetry.pipeline.rollups import SUMMARY, Rollup, empty_rollup
from penstock.telemetry.pipeline.sketch import SKETCH, Ints
from penstock.telemetry.pipeline.tables import TABLES, timestamps

__all__ = ["HOUR_MS", "MINUTE_MS", "ROWS", "Counts", "Outcome", "ShardState", "advance"]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
_PLACE: Final = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]
_ABOUT: Final = ("hostname", "model", "job", "namespace")
GPUS: Final = pa.schema(
    [("gpu_id", pa.string()), *((name, pa.string()) for name in _ABOUT), ("at", pa.int64())]
)
#: The rows of `validate`, as they arrive.
ROWS: Final = pa.schema(
    [
        ("gpu_id", pa.string()),
        ("field", pa.int32()),
        ("at", pa.int64()),
        ("value", pa.float64()),
        *((name, pa.string()) for name in ("hostname", "device", "model", "job", "namespace")),
        ("reason", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("raw", pa.binary()),
    ]
)
_METRICS: Final = {each.id: each.name for each in FIELDS.values()}


@dataclass(frozen=True, slots=True)
class ShardState:
    """What a shard remembers. A GPU's number is its row in `gpus`, for ever."""

    gpus: Any = field(default_factory=GPUS.empty_table)
    #: samples whose window of ten seconds is open
    pending: Any = field(default_factory=PENDING.empty_table)
    #: the last sample of each counter in a window that has closed
    counters: Any = field(default_factory=PENDING.empty_table)
    minutes: Rollup = field(default_factory=empty_rollup)
    hours: Rollup = field(default_factory=empty_rollup)

    def tables(self) -> dict[str, Any]:
        """The state as named tables, for keeping."""
        return {
            "gpus": self.gpus,
            "pending": self.pending,
            "counters": self.counters,
            "minutes": self.minutes.summaries,
            "minutes_sketch": self.minutes.sketch,
            "hours": self.hours.summaries,
            "hours_sketch": self.hours.sketch,
        }

    @classmethod
    def of(cls, tables: dict[str, Any]) -> ShardState:
        return cls(
            tables["gpus"].cast(GPUS),
            tables["pending"].cast(PENDING),
            tables["counters"].cast(PENDING),
            Rollup(tables["minutes"].cast(SUMMARY), tables["minutes_sketch"].cast(SKETCH)),
            Rollup(tables["hours"].cast(SUMMARY), tables["hours_sketch"].cast(SKETCH)),
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
    """What a batch gives: the next state, rows by table, the samples that were taken, and counts."""

    state: ShardState
    rows: dict[str, Any]
    taken: Any
    counts: Counts


def advance(state: ShardState, batch: Any, watermark_ms: int, read_at_ms: int) -> Outcome:
    """Take a batch of ROWS, and close the windows that `watermark_ms` has passed."""
    # Of two equal samples the first in the topic is taken, in every try.
    batch = batch.combine_chunks().sort_by(_PLACE)
    is_sample = pc.is_null(batch["reason"])
    samples = batch.filter(is_sample)
    gpus, numbers = _number_gpus(state.gpus, samples)
    field_ids = samples["field"].to_numpy().astype(np.int64)
    samples = samples.append_column("series", pa.array(admission.series_of(numbers, field_ids)))
    admitted = admission.admit(samples, state.pending, watermark_ms)
    taken, late = samples.filter(pa.array(admitted.taken)), samples.filter(pa.array(admitted.late))
    refused = batch.filter(pc.invert(is_sample))
    closed, rolled = _close_windows(replace(state, gpus=gpus, pending=admitted.pending), watermark_ms)
    counts = Counts(
        consumed=len(batch),
        valid=len(taken),
        dead_lettered=len(refused),
        duplicates=int((~admitted.taken & ~admitted.late).sum()),
        late=len(late),
        newest_ms=pc.max(taken["at"]).as_py() or 0,
    )
    counts.check()
    rows = {
        "samples": _sample_rows(taken),
        "dead_letters": pa.concat_tables(
            [_dead_letter_rows(refused, read_at_ms), _dead_letter_rows(late, read_at_ms, "late")]
        ),
        **rolled,
    }
    return Outcome(closed, rows, taken, counts)


def _number_gpus(known: Any, samples: Any) -> tuple[Any, Ints]:
    """The GPUs with what the newest samples say about them, and the number of each sample's GPU."""
    columns = ["gpu_id", *_ABOUT, "at"]
    newest = samples.select(columns).sort_by([("at", "ascending")])
    told = newest.group_by("gpu_id", use_threads=False).aggregate([(name, "last") for name in columns[1:]])
    told = told.rename_columns(columns).sort_by("gpu_id").cast(GPUS)
    place = pc.index_in(told["gpu_id"], known["gpu_id"]).to_numpy(zero_copy_only=False)
    is_new = np.isnan(place.astype(float))
    grown = pa.concat_tables([known, told.filter(pa.array(is_new))]).combine_chunks()
    latest = pa.concat_tables([grown, told]).sort_by([("at", "ascending")])
    latest = latest.group_by("gpu_id", use_threads=False).aggregate([(name, "last") for name in columns[1:]])
    latest = latest.rename_columns(columns)
    order = pc.index_in(grown["gpu_id"], latest["gpu_id"])
    gpus = latest.take(order).cast(GPUS).combine_chunks()
    numbers = pc.index_in(samples["gpu_id"], gpus["gpu_id"]).to_numpy().astype(np.int64)
    return gpus, numbers


def _close_windows(state: ShardState, watermark_ms: int) -> tuple[ShardState, dict[str, Any]]:
    closed, pending = admission.close(state.pending, watermark_ms)
    followed, counters = rollups.follow_counters(closed, state.counters)
    tens = rollups.summarise(followed, WINDOW_MS)
    # A window is complete when all that it is made of has closed.
    done_ms = admission.closed_before(watermark_ms)
    minutes, open_minutes = rollups.split(rollups.merge([state.minutes, tens], MINUTE_MS), done_ms, MINUTE_MS)
    hours, open_hours = empty_rollup(), state.hours
    if len(minutes.summaries):
        # Between full minutes the hours stay the same tables, which then are not written again.
        hours, open_hours = rollups.split(rollups.merge([open_hours, minutes], HOUR_MS), done_ms, HOUR_MS)
    rows = {
        "rollups_10s": _rollup_rows(tens, state.gpus),
        "rollups_1m": _rollup_rows(minutes, state.gpus),
        "rollups_1h": _rollup_rows(hours, state.gpus),
    }
    return ShardState(state.gpus, pending, counters, open_minutes, open_hours), rows


def _metric_names(field_ids: Any) -> Any:
    ids, place = np.unique(field_ids, return_inverse=True)
    names = pa.array([_METRICS[int(each)] for each in ids], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(place.astype(np.int32)), names).cast(pa.string())


def _sample_rows(taken: Any) -> Any:
    columns = {name: taken[name] for name in taken.column_names if name in TABLES["samples"].names}
    columns |= {"at": timestamps(taken["at"]), "metric": _metric_names(taken["field"].to_numpy())}
    return pa.table([columns[name] for name in TABLES["samples"].names], schema=TABLES["samples"])


def _dead_letter_rows(rows: Any, read_at_ms: int, reason: str | None = None) -> Any:
    schema = TABLES["dead_letters"]
    columns = {name: rows[name] for name in rows.column_names if name in schema.names}
    columns["read_at"] = timestamps(np.full(len(rows), read_at_ms))
    columns["at"] = pc.multiply(rows["at"], 1000).cast(schema.field("at").type)
    if reason is not None:
        columns["reason"] = pa.array([reason] * len(rows), pa.string())
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _rollup_rows(rollup: Rollup, gpus: Any) -> Any:
    found = rollup.summaries
    series = found["series"].to_numpy()
    field_ids = admission.field_of(series)
    about = gpus.take(pa.array(admission.gpu_of(series)))
    p50, p95 = rollups.quantile_columns(rollup, (0.5, 0.95))
    is_gauge = pa.array(~rollups.is_counter(series))
    columns = [
        timestamps(found["start"]),
        *(about[name] for name in ("gpu_id", *_ABOUT)),
        pa.array(field_ids.astype(np.int32)),
        _metric_names(field_ids),
        found["count"],
        found["min"],
        found["max"],
        pc.divide(found["sum"], found["count"].cast(pa.float64())),
        found["last"],
        p50,
        p95,
        pc.if_else(is_gauge, None, found["increase"]),
        pc.if_else(is_gauge, None, pc.divide(found["covered_ms"].cast(pa.float64()), 1000.0)),
    ]
    return pa.table(columns, schema=TABLES["rollups_10s"])
