"""Processes the samples of one task's GPUs in one batch: the stateful stages.

The state is a few columns of numbers; `state` keeps it. `advance` is a pure function of it, of the batch's
rows and of the watermark; the order in which rows arrive does not matter.

The results are rows of tables. Texts stay dictionary-encoded: Parquet takes them so.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.pipeline import admission, rollups
from penstock.telemetry.pipeline.admission import WINDOW_MS, Pending
from penstock.telemetry.pipeline.columns import Ints, field_of, gpu_of, is_counter, is_power, series_of
from penstock.telemetry.pipeline.gpus import GPUS, about_columns, number_gpus, places_of
from penstock.telemetry.pipeline.history import HISTORY, follow, named, still_needed
from penstock.telemetry.pipeline.rollups import Counters, Rollup, Summaries, no_counters, quantile_columns
from penstock.telemetry.pipeline.tables import TEXT, encoded, timestamps

__all__ = [
    "FOREVER_MS",
    "HOUR_MS",
    "MINUTE_MS",
    "ROWS",
    "Counts",
    "Outcome",
    "ShardState",
    "advance",
    "close_all",
    "dead_letter_rows",
    "rollup_rows",
    "sample_rows",
]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
_TEXTS: Final = (
    *("hostname", "device", "pci_bus_id", "model", "workload", "job", "pod", "namespace", "reason", "topic"),
)
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
FOREVER_MS: Final = 1 << 53
_PLACE: Final = [("topic", "ascending"), ("partition", "ascending"), ("offset", "ascending")]


@dataclass(frozen=True, slots=True)
class ShardState:
    """The state of some virtual shards, as far as a batch needs it.

    `pending` may lack windows that the batch neither adds to nor closes. `minute` and `hour` may lack the
    parts of a window that the batch does not close.
    """

    gpus: Any = field(default_factory=GPUS.empty_table)
    #: samples whose window of ten seconds is open
    pending: Pending = field(default_factory=dict)
    counters: Counters = field(default_factory=no_counters)
    #: parts of the minute, and of the hour, that are not over, in order of time
    minute: list[Rollup] = field(default_factory=list)
    hour: list[Rollup] = field(default_factory=list)
    #: what GPUs had before, as far as open windows need it
    history: Any = field(default_factory=HISTORY.empty_table)


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
    """The result of a batch: the next state, rows by table, the accepted samples, and counts.

    `added` has what the batch adds to windows that stay open.
    """

    state: ShardState
    added: Pending
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
    places = places_of(gpus, numbers)
    closed_ms = gpus["closed"].to_numpy()[places]
    late_before = np.maximum(closed_ms, admission.closed_before(watermark_ms))
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
    history = follow(state.history, state.gpus, gpus, samples, places)
    closed, rolled = _close_windows(
        replace(state, gpus=gpus, history=history), admitted.pending, watermark_ms
    )
    dead = [dead_letter_rows(refused, read_at_ms), dead_letter_rows(late, read_at_ms, "late")]
    rows = {"samples": sample_rows(taken), "dead_letters": pa.concat_tables(dead), **rolled}
    added = {start: piece for start, piece in admitted.added.items() if start in closed.pending}
    return Outcome(closed, added, rows, taken, counts)


def close_all(state: ShardState) -> Outcome:
    """The rollups of all windows that are open. A GPU's later samples for windows of its own are late."""
    closed_ms = state.gpus["closed"].to_numpy().copy()
    for window in state.pending.values():
        places = places_of(state.gpus, gpu_of(window.series))
        np.maximum.at(closed_ms, places, window.start + WINDOW_MS)
    place = GPUS.get_field_index("closed")
    gpus = state.gpus.set_column(place, GPUS.field(place), pa.array(closed_ms))
    after, rows = _close_windows(replace(state, gpus=gpus), state.pending, FOREVER_MS)
    rows["dead_letters"] = encoded("dead_letters").empty_table()
    return Outcome(after, {}, rows, ROWS.empty_table(), Counts(0, 0, 0, 0, 0, 0))


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
    state: ShardState, pending: Pending, watermark_ms: int
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
    widths = {"10s": (tens, WINDOW_MS), "1m": (minutes, MINUTE_MS), "1h": (hours, HOUR_MS)}
    rows = {
        f"rollups_{name}": rollup_rows(windows, state.gpus, state.history, width_ms)
        for name, (windows, width_ms) in widths.items()
    }
    history = still_needed(state.history, done_ms)
    return ShardState(state.gpus, still_open, counters, _as_one(minute), _as_one(hour), history), rows


def _as_one(parts: list[Rollup]) -> list[Rollup]:
    """At most one part: the samples that a batch adds to a window stay together."""
    return [rollups.merge(parts[0].start, parts)] if len(parts) > 1 else parts


_METRICS: Final = pa.array([each.name for each in FIELDS.values()], pa.string())
#: by field: where its name is among them. Numbers below zero count from the end, here as in numpy.
_METRIC_AT: Final = np.zeros(max(FIELDS) - min(FIELDS) + 1, np.int32)
_METRIC_AT[list(FIELDS)] = np.arange(len(FIELDS))


def _metric_names(field_ids: Ints) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(_METRIC_AT[field_ids]), _METRICS)


def sample_rows(taken: Any) -> Any:
    schema = encoded("samples")
    columns = {name: taken[name] for name in taken.column_names if name in schema.names}
    columns |= {"at": timestamps(taken["at"]), "metric": _metric_names(taken["field"].to_numpy())}
    return pa.table([columns[name] for name in schema.names], schema=schema)


def dead_letter_rows(rows: Any, read_at_ms: int, reason: str | None = None) -> Any:
    schema = encoded("dead_letters")
    columns = {name: rows[name] for name in rows.column_names if name in schema.names}
    columns["read_at"] = timestamps(np.full(len(rows), read_at_ms))
    columns["at"] = pc.multiply(rows["at"], 1000).cast(schema.field("at").type)
    if reason is not None:
        columns["reason"] = pa.array([reason] * len(rows), TEXT)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def rollup_rows(windows: list[Rollup], gpus: Any, history: Any, width_ms: int) -> Any:
    """Windows of one width. Each names its GPU as it was at the end of the window."""
    schema = encoded("rollups_10s")
    if not windows:
        return schema.empty_table()
    found = Summaries(
        *(np.concatenate(columns) for columns in zip(*(each.summaries for each in windows), strict=True))
    )
    starts = np.repeat([each.start for each in windows], [len(each.summaries.series) for each in windows])
    quantiles = [quantile_columns(each, (0.5, 0.95)) for each in windows]
    p50, p95 = (np.concatenate(columns) for columns in zip(*quantiles, strict=True))
    counts_up = is_counter(found.series)
    is_followed = counts_up | is_power(found.series)
    field_ids = field_of(found.series)
    columns = [
        timestamps(starts),
        *about_columns(*named(gpus, history, gpu_of(found.series), starts + width_ms)),
        field_ids.astype(np.int32),
        _metric_names(field_ids),
        found.n,
        found.min,
        found.max,
        found.sum / found.n,
        found.last,
        pa.array(p50, mask=counts_up),
        pa.array(p95, mask=counts_up),
        pa.array(found.increase, mask=~is_followed),
        pa.array(found.covered_ms / 1000.0, mask=~is_followed),
    ]
    return pa.table(columns, schema=schema)
