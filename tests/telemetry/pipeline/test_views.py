from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual

from penstock.telemetry.pipeline import views

DDL = (
    "gpu_id STRING, hostname STRING, job STRING, field INT, count BIGINT, max DOUBLE, mean DOUBLE, "
    "increase DOUBLE, covered_s DOUBLE"
)


def gauge(gpu: str, field: int, mean: float, count: int = 1, job: str | None = "j") -> tuple[Any, ...]:
    return (gpu, "h", job, field, count, mean, mean, None, None)


def counter(gpu: str, field: int, increase: float, covered_s: float) -> tuple[Any, ...]:
    return (gpu, "h", "j", field, 1, increase, increase, increase, covered_s)


@pytest.fixture(scope="module")
def rollups(spark: SparkSession) -> DataFrame:
    rows = [
        # two windows of different weight, of a GPU that is idle in one of them
        gauge("a", 203, 0.0, count=1),
        gauge("a", 203, 80.0, count=3),
        gauge("a", 1002, 0.5),
        gauge("b", 203, 100.0),
        gauge("b", 1002, 0.1),
        gauge("c", 203, 0.0, job=None),
        counter("a", 156, 3.6e6, 10.0),
        counter("b", 156, 7.2e6, 10.0),
        counter("a", 240, 2e9, 10.0),
        counter("a", 240, 0.0, 10.0),
        counter("a", 241, 5e9, 10.0),
    ]
    return spark.createDataFrame(rows, DDL).coalesce(1).cache()


def test_utilisation_weighs_windows_by_their_samples(spark: SparkSession, rollups: DataFrame) -> None:
    expected = [("a", 1, 60.0, 0.5), ("b", 1, 100.0, 0.1), ("c", 1, 0.0, None)]
    ddl = "gpu_id STRING, gpus BIGINT NOT NULL, gpu_util_percent DOUBLE, sm_active_share DOUBLE"
    assertDataFrameEqual(views.utilization(rollups, "gpu_id"), spark.createDataFrame(expected, ddl))


def test_idle_is_who_holds_a_gpu_and_does_nothing(rollups: DataFrame) -> None:
    found = views.idle_occupied(rollups, util_max_percent=2.0).collect()
    assert [(row.gpu_id, row.windows, row.idle_windows) for row in found] == [("a", 2, 1)]


def test_fake_busy_is_busy_with_little_at_work(rollups: DataFrame) -> None:
    assert [row.gpu_id for row in views.fake_busy(rollups, 80.0, 0.25).collect()] == ["b"]


def test_energy_and_throttling_come_from_what_counters_gained(rollups: DataFrame) -> None:
    assert [tuple(row) for row in views.energy(rollups, "hostname").collect()] == [("h", 3.0)]
    (row,) = views.throttling(rollups, "gpu_id").collect()
    assert (row.power_share, row.thermal_share) == (pytest.approx(0.1), pytest.approx(0.5))
