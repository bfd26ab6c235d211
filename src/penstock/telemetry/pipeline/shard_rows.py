"""A shard's results as rows of tables. Texts stay dictionary-encoded: Parquet takes them so."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.fields import FIELDS
from penstock.telemetry.pipeline.columns import Ints, field_of, gpu_of, is_counter, is_power
from penstock.telemetry.pipeline.gpus import about_columns
from penstock.telemetry.pipeline.history import named
from penstock.telemetry.pipeline.rollups import Rollup, Summaries, quantile_columns
from penstock.telemetry.pipeline.tables import TEXT, encoded, timestamps

__all__ = ["dead_letter_rows", "rollup_rows", "sample_rows"]

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
