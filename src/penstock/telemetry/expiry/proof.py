"""Counts a day's samples and what its rollups have counted, from the tables' files."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.telemetry.expiry.rule import Counted, Proof, span_of_day
from penstock.telemetry.queries.reader import Measure, TableReader, time_column
from penstock.telemetry.queries.spans import ROLLUPS, SAMPLES, Level, Piece, Span

__all__ = ["prove"]

_HOUR_US: Final = 3_600_000_000


def prove(reader: TableReader, day: str) -> Proof:
    """Compare a day of samples with its rollups of each width; reads three columns of each table."""
    span = span_of_day(day)
    samples = _counted(reader, SAMPLES, span)
    return Proof.of(day, samples, {level.table: _counted(reader, level, span) for level in ROLLUPS})


def _counted(reader: TableReader, level: Level, span: Span) -> Counted:
    """The samples of a span by hour and field: rows of samples, or what the rows of windows count."""
    at = pc.field(time_column(level.table)).cast(pa.int64())
    measure = Measure("samples", "count", at)
    if level is not SAMPLES:
        measure = Measure("samples", "sum", pc.field("count"))
    keys = {"hour": pc.divide(at, _HOUR_US), "field": pc.field("field")}
    found = reader.aggregate(Piece(level, span), keys, [measure], pc.scalar(True))
    columns = (found[name].to_pylist() for name in ("hour", "field", "samples"))
    return {(hour, field): number for hour, field, number in zip(*columns, strict=True)}
