"""Rollups of samples and views of rollups, in SQL: functions from data frames to data frames.

The numbers are DCGM's: 203 GPU_UTIL, 1002 SM_ACTIVE, 252 FB_USED, 156 energy, 155 and 157 power, 240 and 241
time below the full clock because of power and of heat.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, SparkSession

from penstock.telemetry.fields import FIELDS, Kind

__all__ = ["VIEWS", "WIDTHS_MS", "energy", "idle", "rollups", "throttling", "utilization"]

#: by table
WIDTHS_MS: Final = {"rollups_10s": 10_000, "rollups_1m": 60_000, "rollups_1h": 3_600_000}
_COUNTERS: Final = ", ".join(str(each.id) for each in FIELDS.values() if each.kind is Kind.COUNTER)
_POWERS: Final = "155, 157"
#: milliseconds; power is not integrated over longer gaps
_GAP_MS: Final = 300_000

_ROLLUPS: Final = f"""
WITH in_order AS (
  SELECT *, unix_millis(at) AS at_ms, lag(value) OVER series AS value_before,
         lag(unix_millis(at)) OVER series AS before_ms
  FROM {{samples}}
  WINDOW series AS (PARTITION BY gpu_id, field ORDER BY at)
), timed AS (
  SELECT *,
    CASE WHEN before_ms IS NULL THEN 0
         WHEN field IN ({_POWERS}) AND at_ms - before_ms > {_GAP_MS} THEN 0
         ELSE at_ms - before_ms END AS elapsed_ms
  FROM in_order
), followed AS (
  SELECT *,
    CASE WHEN before_ms IS NULL THEN 0D
         WHEN field IN ({_POWERS}) THEN (value + value_before) / 2 * elapsed_ms / 1000
         WHEN value < value_before THEN value
         ELSE value - value_before END AS gained
  FROM timed
), grouped AS (
  SELECT at_ms DIV {{width_ms}} * {{width_ms}} AS start_ms, gpu_id, field,
    max_by(hostname, at_ms) AS hostname, max_by(device, at_ms) AS device,
    max_by(pci_bus_id, at_ms) AS pci_bus_id, max_by(model, at_ms) AS model,
    max_by(workload, at_ms) AS workload, max_by(job, at_ms) AS job,
    max_by(pod, at_ms) AS pod, max_by(namespace, at_ms) AS namespace,
    count(*) AS count, min(value) AS min, max(value) AS max, avg(value) AS mean,
    max_by(value, at_ms) AS last, sort_array(collect_list(value)) AS ordered,
    sum(gained) AS gained, sum(elapsed_ms) / 1000 AS elapsed_s
  FROM followed GROUP BY ALL
)
SELECT timestamp_millis(start_ms) AS window_start, gpu_id, hostname, device, pci_bus_id, model, workload, job,
  pod, namespace, field, count, min, max, mean, last,
  CASE WHEN field NOT IN ({_COUNTERS}) THEN ordered[CAST(floor(0.50 * (count - 1)) AS INT)] END AS p50,
  CASE WHEN field NOT IN ({_COUNTERS}) THEN ordered[CAST(floor(0.95 * (count - 1)) AS INT)] END AS p95,
  CASE WHEN field IN ({_COUNTERS}, {_POWERS}) THEN gained END AS increase,
  CASE WHEN field IN ({_COUNTERS}, {_POWERS}) THEN elapsed_s END AS covered_s
FROM grouped
"""

_UTILIZATION: Final = """
SELECT {by}, count(DISTINCT gpu_id) AS gpus,
  sum(mean * count) FILTER (WHERE field = 203) / sum(count) FILTER (WHERE field = 203) AS gpu_util_percent,
  sum(mean * count) FILTER (WHERE field = 1002) / sum(count) FILTER (WHERE field = 1002) AS sm_active_share,
  sum(mean * count) FILTER (WHERE field = 252) / sum(count) FILTER (WHERE field = 252) AS memory_used_mib
FROM {rollups} WHERE field IN (203, 1002, 250, 251, 252) GROUP BY {by}
"""

_ENERGY: Final = """
WITH measured AS (
  SELECT {by}, gpu_id AS gpu,
    sum(increase) FILTER (WHERE field = 156) / 3.6e6 AS counted_wh,
    sum(covered_s) FILTER (WHERE field = 156) AS counted_s,
    sum(increase) FILTER (WHERE field = 155) / 3600 AS power_wh,
    sum(covered_s) FILTER (WHERE field = 155) AS power_s,
    sum(increase) FILTER (WHERE field = 157) / 3600 AS instant_wh,
    sum(covered_s) FILTER (WHERE field = 157) AS instant_s
  FROM {rollups} WHERE field IN (155, 156, 157) GROUP BY {by}, gpu_id
), used AS (
  SELECT *,
    CASE WHEN counted_s > 0 THEN counted_wh WHEN power_s > 0 THEN power_wh
         WHEN instant_s > 0 THEN instant_wh END AS wh,
    CASE WHEN counted_s > 0 THEN counted_s WHEN power_s > 0 THEN power_s
         WHEN instant_s > 0 THEN instant_s END AS seconds
  FROM measured
)
SELECT {by}, count(DISTINCT gpu) AS gpus, sum(wh) AS energy_wh,
  sum(wh) * 3600 / sum(seconds) AS gpu_power_mean_w
FROM used GROUP BY {by}
"""

_THROTTLING: Final = """
SELECT {by},
  sum(increase) FILTER (WHERE field = 240) / 1e9 / nullif(sum(covered_s) FILTER (WHERE field = 240), 0)
    AS power_throttled_share,
  sum(increase) FILTER (WHERE field = 241) / 1e9 / nullif(sum(covered_s) FILTER (WHERE field = 241), 0)
    AS thermal_throttled_share
FROM {rollups} WHERE field IN (240, 241) GROUP BY {by}
"""

_IDLE: Final = """
SELECT gpu_id, hostname, workload, sum(CASE WHEN max <= {idle_max} THEN {width_s} ELSE 0 END) AS idle_s,
  sum({width_s}) AS observed_s
FROM {rollups} WHERE field = 203 GROUP BY gpu_id, hostname, workload HAVING idle_s > 0
"""


def rollups(samples: DataFrame, width_ms: int) -> DataFrame:
    """Windows of one width, each from its samples."""
    return _sql(_ROLLUPS.replace("{width_ms}", str(width_ms)), samples=samples)


def utilization(rollups: DataFrame, by: str) -> DataFrame:
    """Mean utilisation, share of active multiprocessors and memory in use, over all samples of a group."""
    return _sql(_UTILIZATION.replace("{by}", by), rollups=rollups)


def energy(rollups: DataFrame, by: str) -> DataFrame:
    """Watt-hours by the energy counter of each GPU, or by its power if it has none."""
    return _sql(_ENERGY.replace("{by}", by), rollups=rollups)


def throttling(rollups: DataFrame, by: str) -> DataFrame:
    """The share of the time in which power, and in which heat, has held clocks down."""
    return _sql(_THROTTLING.replace("{by}", by), rollups=rollups)


def idle(rollups: DataFrame, width_ms: int, idle_max_percent: float) -> DataFrame:
    """For each GPU and workload: how long no window has exceeded this utilisation."""
    replacements = {"{width_s}": f"{width_ms / 1000}D", "{idle_max}": f"{idle_max_percent}D"}
    text = _IDLE
    for name, value in replacements.items():
        text = text.replace(name, value)
    return _sql(text, rollups=rollups)


#: views that have a column to group by
VIEWS: Final = {"utilization": utilization, "energy": energy, "throttling": throttling}


def _sql(text: str, **frames: DataFrame) -> DataFrame:
    session: SparkSession = next(iter(frames.values())).sparkSession
    return session.sql(text, None, **frames)
