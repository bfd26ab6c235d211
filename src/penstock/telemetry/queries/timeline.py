"""A metric of every GPU over time, in equal steps, for plots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.queries.reader import Measure, TableReader
from penstock.telemetry.queries.spans import DAY_MS, HOUR_MS, MINUTE_MS, ROLLUPS, Span

__all__ = ["Timeline", "read_timelines", "step_of"]

_STEPS_MS: Final = (
    10_000,
    30_000,
    MINUTE_MS,
    5 * MINUTE_MS,
    15 * MINUTE_MS,
    HOUR_MS,
    6 * HOUR_MS,
    DAY_MS,
    7 * DAY_MS,
)
_STEPS_MOST: Final = 300


class Timeline(NamedTuple):
    """Means by GPU (rows, by host and id) and step (columns); NaN where nothing was measured."""

    gpu_ids: list[str]
    hostnames: list[str]
    starts_ms: Any
    step_ms: int
    values: Any


def step_of(span: Span) -> int:
    """The finest step that makes no more columns than a picture shows."""
    return next((step for step in _STEPS_MS if span.width <= step * _STEPS_MOST), _STEPS_MS[-1])


def read_timelines(reader: TableReader, span: Span, fields: Sequence[int]) -> list[Timeline]:
    """The means of some gauges, in one go. The span is widened to whole steps."""
    step_ms = step_of(span)
    wide = Span(span.start // step_ms * step_ms, -(-span.end // step_ms) * step_ms)
    # Steps are whole windows of every level that is not wider than they are.
    levels = [level for level in ROLLUPS if level.width_ms <= step_ms]
    step = pc.divide(pc.field("window_start").cast(pa.int64()), step_ms * 1000)
    keys = {**{name: pc.field(name) for name in ("gpu_id", "hostname", "field")}, "step": step}
    measures = [
        Measure("samples", "sum", pc.field("count")),
        Measure("weighted", "sum", pc.multiply(pc.field("mean"), pc.field("count").cast(pa.float64()))),
    ]
    is_wanted = pc.field("field").isin(list(fields))
    parts = [reader.aggregate(piece, keys, measures, is_wanted) for piece in reader.cover(wide, levels)]
    rows = pa.concat_tables(parts)
    starts_ms = np.arange(wide.start, wide.end, step_ms)
    return [_timeline(rows.filter(pc.field("field") == field), starts_ms, step_ms) for field in fields]


def _timeline(rows: Any, starts_ms: Any, step_ms: int) -> Timeline:
    hosts = rows.group_by("gpu_id", use_threads=False).aggregate([("hostname", "last")])
    hosts = hosts.sort_by([("hostname_last", "ascending"), ("gpu_id", "ascending")])
    place = pc.index_in(rows["gpu_id"], hosts["gpu_id"]).to_numpy()
    column = rows["step"].to_numpy() - starts_ms[0] // step_ms
    samples, weighted = np.zeros((2, len(hosts), len(starts_ms)))
    np.add.at(samples, (place, column), rows["samples"].to_numpy())
    np.add.at(weighted, (place, column), rows["weighted"].to_numpy())
    values = np.full(samples.shape, np.nan)
    np.divide(weighted, samples, out=values, where=samples > 0)
    names = [name or "" for name in hosts["hostname_last"].to_pylist()]
    return Timeline(hosts["gpu_id"].to_pylist(), names, starts_ms, step_ms, values)
