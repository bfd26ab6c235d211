"""Recomputes rollups and views as a batch job, and compares rollups with those of the pipeline."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.telemetry.pipeline.tables import TABLES, Tables
from penstock.telemetry.recompute.comparison import differences
from penstock.telemetry.recompute.reference import VIEWS, WIDTHS_MS, idle, rollups

__all__ = ["Recomputed", "read_table", "recompute"]

_SHOWN = 5
_WINDOW_MS = 10_000


class Recomputed(NamedTuple):
    """The comparison of one rollup table."""

    table: str
    #: compared windows
    windows: int
    differences: int
    #: the first of them, in words
    examples: list[str]


def read_table(spark: SparkSession, tables: Tables, name: str) -> DataFrame:
    """A table from the Parquet files that its Delta log lists: no Delta jar is needed."""
    opened = tables.open(name)
    files = [uri.replace("s3://", "s3a://", 1) for uri in opened.file_uris()]
    columns = [field.name for field in TABLES[name]]
    if not files:
        ddl = Tables.ddl(name)
        return spark.createDataFrame([], ddl)
    # Files of an older version lack columns.
    return spark.read.schema(Tables.ddl(name)).parquet(*files).select(*columns)


def recompute(
    spark: SparkSession,
    tables: Tables,
    out: str | None = None,
    by: str = "hostname",
    idle_max_percent: float = 5.0,
) -> list[Recomputed]:
    """Compare each rollup table with the reference; with `out`, write reference rollups and views there.

    `by` is the column of a GPU by which views are grouped.
    """
    samples = read_table(spark, tables, "samples").cache()
    watermark = read_table(spark, tables, "batches").agg(F.max(F.unix_millis("watermark"))).first()
    done_ms = (watermark[0] or 0) // _WINDOW_MS * _WINDOW_MS if watermark else 0
    found = []
    for name, width_ms in WIDTHS_MS.items():
        reference = rollups(samples, width_ms).cache()
        found.append(_compared(name, read_table(spark, tables, name), reference, done_ms - width_ms))
        if out is not None:
            _write(reference, name, out, by, idle_max_percent)
        reference.unpersist()
    samples.unpersist()
    return found


def _write(reference: DataFrame, name: str, out: str, by: str, idle_max_percent: float) -> None:
    """Write the rollups, and of those of a minute the views."""
    reference.write.mode("overwrite").parquet(f"{out}/{name}")
    if name == "rollups_1m":
        made = {f"{view}_by_{by}": of(reference, by) for view, of in VIEWS.items()}
        made["idle"] = idle(reference, WIDTHS_MS[name], idle_max_percent)
        for view, rows in made.items():
            rows.write.mode("overwrite").parquet(f"{out}/{view}")


def _compared(name: str, streamed: DataFrame, reference: DataFrame, last_ms: int) -> Recomputed:
    """Compare windows that start by `last_ms`; all of them if the pipeline has closed all."""
    is_over = F.unix_millis("window_start") <= last_ms
    totals = [F.coalesce(F.sum("count"), F.lit(0)), F.count("*"), F.count_if(is_over)]
    counted, expected = (frame.agg(*totals).collect()[0] for frame in (streamed, reference))
    windows = expected[1]
    if counted[0] != expected[0]:
        streamed, reference, windows = streamed.where(is_over), reference.where(is_over), expected[2]
    start = F.date_format("window_start", "yyyy-MM-dd HH:mm:ss")
    words = F.concat_ws(" ", "difference", "gpu_id", "field", start)
    examples = F.slice(F.sort_array(F.collect_list(words)), 1, _SHOWN)
    number, shown = differences(streamed, reference).agg(F.count("*"), examples).collect()[0]
    return Recomputed(name, windows, number, list(shown))
