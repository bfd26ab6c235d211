"""Rollups and views in SQL, on literal frames."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from penstock.telemetry.recompute import reference

pytestmark = pytest.mark.slow

BEGIN = datetime(2025, 7, 18, 20, 0, tzinfo=UTC)
SAMPLES = (
    "at TIMESTAMP, gpu_id STRING, hostname STRING, device STRING, pci_bus_id STRING, model STRING, "
    "workload STRING, job STRING, pod STRING, namespace STRING, field INT, value DOUBLE"
)
UTIL, POWER, ENERGY, THERMAL, SM_ACTIVE = 203, 155, 156, 241, 1002


def sample(second: float, field: int, value: float, gpu: str = "a", job: str = "train") -> tuple[Any, ...]:
    about = (gpu, "host-1", "nvidia0", None, "H200", job, job, None, None)
    return (BEGIN + timedelta(seconds=second), *about, field, value)


@pytest.fixture(scope="module")
def rollups(spark: SparkSession) -> DataFrame:
    """Two minutes of two GPUs, out of order."""
    rows = [
        sample(70, UTIL, 20.0),
        sample(0, UTIL, 80.0),
        sample(10, UTIL, 60.0, job="next"),
        # The counter restarts between 20 s and 80 s.
        sample(0, ENERGY, 1000.0),
        sample(20, ENERGY, 4600.0),
        sample(80, ENERGY, 400.0),
        # 0.5 s of 10 s
        sample(0, THERMAL, 0.0),
        sample(10, THERMAL, 0.5e9),
        # This GPU has no energy counter, and a gap of ten minutes.
        sample(0, POWER, 100.0, "b"),
        sample(60, POWER, 300.0, "b"),
        sample(660, POWER, 300.0, "b"),
        sample(0, UTIL, 0.0, "b"),
        sample(61, UTIL, 4.0, "b"),
    ]
    return reference.rollups(spark.createDataFrame(rows, SAMPLES), 60_000).cache()


def by(frame: DataFrame, *keys: str) -> dict[Any, dict[str, Any]]:
    rows = [row.asDict() for row in frame.collect()]
    return {tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]: row for row in rows}


def test_a_window_has_the_statistics_of_its_samples(rollups: DataFrame) -> None:
    timed = rollups.selectExpr("*", "unix_seconds(window_start) AS start")
    found = by(timed, "gpu_id", "field", "start")
    start = int(BEGIN.timestamp())
    first = found["a", UTIL, start]
    assert [first[name] for name in ("count", "min", "max", "mean", "last")] == [2, 60.0, 80.0, 70.0, 60.0]
    assert first["workload"] == "next", "of the newest sample"
    assert (first["p50"], first["increase"]) == (60.0, None)
    energies = [found["a", ENERGY, start + offset] for offset in (0, 60)]
    assert [(row["increase"], row["covered_s"], row["p50"]) for row in energies] == [
        (3600.0, 20.0, None),
        # A counter that decreases has restarted at zero.
        (400.0, 60.0, None),
    ]
    powers = [found["b", POWER, start + offset] for offset in (0, 60, 660)]
    assert [(row["increase"], row["covered_s"]) for row in powers] == [
        (0.0, 0.0),
        (12_000.0, 60.0),
        (0.0, 0.0),
    ]


def test_views_of_rollups(rollups: DataFrame) -> None:
    (busy,) = reference.utilization(rollups, "hostname").collect()
    assert (busy.gpus, busy.gpu_util_percent) == (2, pytest.approx((80 + 60 + 20 + 0 + 4) / 5))
    assert (busy.sm_active_share, busy.memory_used_mib) == (None, None), "missing, and not 0"
    energy = by(reference.energy(rollups, "gpu_id"), "gpu_id")
    assert energy["a"]["energy_wh"] == pytest.approx(4000 / 3.6e6)
    assert energy["b"]["energy_wh"] == pytest.approx(12_000 / 3600)
    assert energy["b"]["gpu_power_mean_w"] == pytest.approx(200.0)
    (throttled,) = reference.throttling(rollups, "hostname").collect()
    assert throttled.thermal_throttled_share == pytest.approx(0.05)
    assert throttled.power_throttled_share is None
    (idle,) = reference.idle(rollups, 60_000, 5.0).collect()
    assert (idle.gpu_id, idle.idle_s, idle.observed_s) == ("b", 120.0, 120.0)
