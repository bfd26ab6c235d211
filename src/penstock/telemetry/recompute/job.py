"""Recomputes rollups and views as a batch job, and compares rollups with those of the pipeline."""

from __future__ import annotations

from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.telemetry.pipeline.sketch import ACCURACY
from penstock.telemetry.pipeline.tables import TABLES, Tables
from penstock.telemetry.recompute.reference import VIEWS, WIDTHS_MS, idle, rollups

__all__ = ["Recomputed", "differences", "read_table", "recompute"]

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
    kept_since: str | None = None,
) -> list[Recomputed]:
    """Compare each rollup table with the reference; with `out`, write reference rollups and views there.

    `by` is the column of a GPU by which views are grouped. Windows before the day `kept_since` are left
    out: their samples have expired.
    """
    samples = _since(read_table(spark, tables, "samples"), "at", kept_since).cache()
    watermark = read_table(spark, tables, "batches").agg(F.max(F.unix_millis("watermark"))).first()
    done_ms = (watermark[0] or 0) // _WINDOW_MS * _WINDOW_MS if watermark else 0
    found = []
    for name, width_ms in WIDTHS_MS.items():
        reference = rollups(samples, width_ms).cache()
        streamed = _since(read_table(spark, tables, name), "window_start", kept_since)
        found.append(_compared(name, streamed, reference, done_ms - width_ms, is_cut=kept_since is not None))
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


def _since(frame: DataFrame, time: str, day: str | None) -> DataFrame:
    """The rows from the start of a day on; all without a day."""
    return frame if day is None else frame.where(F.col(time) >= F.lit(f"{day}T00:00:00Z").cast("timestamp"))


def _compared(
    name: str, streamed: DataFrame, reference: DataFrame, last_ms: int, *, is_cut: bool
) -> Recomputed:
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
    number, shown = differences(streamed, reference, is_cut=is_cut).agg(F.count("*"), examples).collect()[0]
    return Recomputed(name, windows, number, list(shown))


#: sums of floating-point numbers depend on their order
_SUM_TOLERANCE: Final = 1e-9
#: quantiles come from sketches
_QUANTILE_TOLERANCE: Final = 1.001 * ACCURACY

#: A window that goes on after a closing has two rows, which add up except for quantiles and last value.
_STREAMED: Final = """
SELECT window_start, gpu_id, field, sum(count) AS count, min(min) AS min, max(max) AS max,
  sum(mean * count) / sum(count) AS mean, sum(increase) AS increase, sum(covered_s) AS covered_s,
  CASE WHEN count(*) = 1 THEN max(last) END AS last, CASE WHEN count(*) = 1 THEN max(p50) END AS p50,
  CASE WHEN count(*) = 1 THEN max(p95) END AS p95
FROM {streamed} GROUP BY window_start, gpu_id, field
"""

_DIFFERENCES: Final = """
WITH pairs AS (
  SELECT coalesce(s.window_start, r.window_start) AS window_start, coalesce(s.gpu_id, r.gpu_id) AS gpu_id,
    coalesce(s.field, r.field) AS field, s.count AS streamed_count, r.count AS reference_count,
    CASE WHEN s.count IS NULL THEN 'missing'
         WHEN r.count IS NULL THEN 'unexpected'
         WHEN s.count <> r.count THEN 'count'
         WHEN s.min <> r.min OR s.max <> r.max THEN 'range'
         WHEN NOT {mean} THEN 'mean'
         WHEN NOT ({increase} OR {first}) THEN 'increase'
         WHEN NOT ({covered_s} OR {first}) THEN 'covered_s'
         WHEN s.last <> r.last THEN 'last'
         WHEN NOT {p50} OR NOT {p95} THEN 'quantile' END AS difference
  FROM {streamed} s FULL OUTER JOIN {cut} r
    ON s.window_start = r.window_start AND s.gpu_id = r.gpu_id AND s.field = r.field
)
SELECT * FROM pairs WHERE difference IS NOT NULL
"""

#: with the start of the first window of each series
_FIRST: Final = (
    "(SELECT *, min(window_start) OVER (PARTITION BY gpu_id, field) AS first_start FROM {reference})"
)


def differences(streamed: DataFrame, reference: DataFrame, *, is_cut: bool = False) -> DataFrame:
    """The windows in which both differ, and by what. Null equals null, and a missing quantile anything.

    `is_cut`: the reference lacks samples before its first windows, so the increase of those is not compared.
    """
    session = streamed.sparkSession
    text = _DIFFERENCES.replace("{first}", "r.window_start = r.first_start" if is_cut else "false")
    text = text.replace("{cut}", _FIRST if is_cut else "{reference}")
    for name in ("mean", "increase", "covered_s"):
        near = f"abs(s.{name} - r.{name}) <= {_SUM_TOLERANCE} * greatest(1, abs(r.{name}))"
        text = text.replace(f"{{{name}}}", f"coalesce({near}, s.{name} IS NULL AND r.{name} IS NULL)")
    for name in ("p50", "p95"):
        near = f"abs(s.{name} - r.{name}) <= {_QUANTILE_TOLERANCE} * abs(r.{name}) + 1e-6"
        text = text.replace(f"{{{name}}}", f"coalesce({near}, true)")
    joined = session.sql(_STREAMED, None, streamed=streamed)
    return session.sql(text, None, streamed=joined, reference=reference)
