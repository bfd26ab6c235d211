"""Stage 4: what a fleet's owner asks, from rollups of any width.

All of it follows from the tables, so nothing is kept: a view is a function of the rows of a rollup table.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

__all__ = ["energy", "fake_busy", "idle_occupied", "throttling", "utilization"]

_UTIL, _SM_ACTIVE, _ENERGY = 203, 1002, 156
_THROTTLES: Final = {240: "power", 241: "thermal"}
_MJ_PER_WH: Final = 3.6e6
_NS_PER_S: Final = 1e9


def _mean_of(field: int) -> Column:
    """The mean of a field over all samples of the grouped windows."""
    own = F.col("field") == field
    return F.sum(F.when(own, F.col("mean") * F.col("count"))) / F.sum(F.when(own, F.col("count")))


def utilization(rollups: DataFrame, *by: str) -> DataFrame:
    """Mean utilisation in percent, and share of multiprocessors at work, by GPU, host, model or job."""
    measured = rollups.where(F.col("field").isin(_UTIL, _SM_ACTIVE))
    grouped = measured.groupBy(*by).agg(
        F.countDistinct("gpu_id").alias("gpus"),
        _mean_of(_UTIL).alias("gpu_util_percent"),
        _mean_of(_SM_ACTIVE).alias("sm_active_share"),
    )
    return grouped.orderBy(*by)


def idle_occupied(rollups: DataFrame, util_max_percent: float) -> DataFrame:
    """For each GPU that a job holds: how many of its windows it spent idle."""
    held = rollups.where((F.col("field") == _UTIL) & F.col("job").isNotNull())
    is_idle = F.col("max") <= util_max_percent
    counted = held.groupBy("gpu_id", "hostname", "job").agg(
        F.count(F.lit(1)).alias("windows"), F.count(F.when(is_idle, 1)).alias("idle_windows")
    )
    return counted.where(F.col("idle_windows") > 0).orderBy(F.desc("idle_windows"), "gpu_id")


def fake_busy(rollups: DataFrame, util_min_percent: float, sm_active_max_share: float) -> DataFrame:
    """GPUs that say they are busy while few of their multiprocessors are."""
    means = utilization(rollups, "gpu_id", "hostname", "job")
    is_busy = F.col("gpu_util_percent") >= util_min_percent
    return means.where(is_busy & (F.col("sm_active_share") <= sm_active_max_share)).drop("gpus")


def energy(rollups: DataFrame, *by: str) -> DataFrame:
    """Watt-hours, from the counters."""
    used = rollups.where(F.col("field") == _ENERGY)
    return used.groupBy(*by).agg((F.sum("increase") / _MJ_PER_WH).alias("energy_wh")).orderBy(*by)


def throttling(rollups: DataFrame, *by: str) -> DataFrame:
    """The share of the time in which power, and in which heat, has held clocks down."""
    shares = []
    for field, name in _THROTTLES.items():
        own = F.col("field") == field
        held_s = F.sum(F.when(own, F.col("increase"))) / _NS_PER_S
        shares.append((held_s / F.sum(F.when(own, F.col("covered_s")))).alias(f"{name}_share"))
    return rollups.where(F.col("field").isin(*_THROTTLES)).groupBy(*by).agg(*shares).orderBy(*by)
