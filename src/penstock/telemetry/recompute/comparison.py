"""Compares rollups of the pipeline with the reference, window by window."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from penstock.telemetry.pipeline.sketch import ACCURACY

__all__ = ["differences"]

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
         WHEN NOT {increase} THEN 'increase'
         WHEN NOT {covered_s} THEN 'covered_s'
         WHEN s.last <> r.last THEN 'last'
         WHEN NOT {p50} OR NOT {p95} THEN 'quantile' END AS difference
  FROM {streamed} s FULL OUTER JOIN {reference} r
    ON s.window_start = r.window_start AND s.gpu_id = r.gpu_id AND s.field = r.field
)
SELECT * FROM pairs WHERE difference IS NOT NULL
"""


def differences(streamed: DataFrame, reference: DataFrame) -> DataFrame:
    """The windows in which both differ, and by what. Null equals null, and a missing quantile anything."""
    session = streamed.sparkSession
    text = _DIFFERENCES
    for name in ("mean", "increase", "covered_s"):
        near = f"abs(s.{name} - r.{name}) <= {_SUM_TOLERANCE} * greatest(1, abs(r.{name}))"
        text = text.replace(f"{{{name}}}", f"coalesce({near}, s.{name} IS NULL AND r.{name} IS NULL)")
    for name in ("p50", "p95"):
        near = f"abs(s.{name} - r.{name}) <= {_QUANTILE_TOLERANCE} * abs(r.{name}) + 1e-6"
        text = text.replace(f"{{{name}}}", f"coalesce({near}, true)")
    joined = session.sql(_STREAMED, None, streamed=streamed)
    return session.sql(text, None, streamed=joined, reference=reference)
