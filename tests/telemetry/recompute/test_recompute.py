"""The streaming tables against plain SQL over the samples."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.jobs import session
from penstock.telemetry.pipeline.batches import Batches, Settings
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.pipeline.validate import judge
from penstock.telemetry.queries import fleet
from penstock.telemetry.queries.gpus import find_gpus
from penstock.telemetry.queries.idleness import find_idle
from penstock.telemetry.queries.reader import TableReader
from penstock.telemetry.queries.spans import MINUTE_MS, Span
from penstock.telemetry.recompute import reference
from penstock.telemetry.recompute.job import differences, read_table
from penstock.telemetry.simulate.dirt import Shares
from penstock.telemetry.simulate.run import Scenario, Simulation
from penstock.telemetry.thresholds import load_thresholds
from tests.cli import running
from tests.telemetry.pipeline.in_process import run_here
from tests.telemetry.pipeline.messages import NOW_MS, messages
from tests.telemetry.recorder import Recorder
from tests.telemetry.small_fleet import BEGIN_MS, MINUTES

DIRT = Shares(late=0.02, duplicates=0.02, out_of_order=0.05, malformed=0.002, sentinels=0.002)
BATCH_ROWS = 900


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet with late, duplicate and out-of-order samples, whose windows are not all closed."""
    place, sent = tmp_path_factory.mktemp("streamed"), Recorder()
    Simulation(Scenario(1, 5, NOW_MS, duration_s=150.0, dirt=DIRT, late_s=60.0), sent).run(
        lambda second: True, lambda step_s: None
    )
    settings = Settings(load_thresholds(), shards=3, delay_ms=20_000)
    clock = NOW_MS + 3_600_000
    batches = Batches(str(place), str(place / "_queries"), settings, clock=lambda: clock, run_shards=run_here)
    values = [message.value for message in sent.messages]
    for batch_id, first in enumerate(range(0, len(values), BATCH_ROWS)):
        rows = judge(messages(values[first : first + BATCH_ROWS], first), clock)
        batches.process(rows.to_pylist(), batch_id)
    return place


@pytest.fixture
def command(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """`penstock telemetry recompute` in the session of the tests: its exit code and output."""
    monkeypatch.setattr(session, "new_session", lambda master, name: spark)
    monkeypatch.setattr(SparkSession, "stop", lambda self: None)

    def run(*arguments: str) -> tuple[int, str]:
        code = running.run_here("telemetry", "recompute", *arguments)
        said = capsys.readouterr()
        return code, said.out + said.err

    return run


def test_streaming_tables_equal_the_reference(
    spark: SparkSession, streamed: Path, tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    counts = Tables(str(streamed)).open("batches").to_pyarrow_table().to_pydict()
    assert sum(counts["late"]) > 0
    assert sum(counts["duplicates"]) > 0
    out = tmp_path / "out"
    code, said = command("--tables", str(streamed), "--out", str(out))
    assert code == 0, said
    windows = {
        table: int(number.replace(",", ""))
        for table, number in re.findall(r"(\w+): ([\d,]+) windows compared, 0 differ", said)
    }
    # The hour is not over, and its window is not compared.
    assert windows["rollups_10s"] > windows["rollups_1m"] > windows["rollups_1h"] == 0
    written = spark.read.parquet(str(out / "utilization_by_hostname"))
    assert written.count() == 1


COLUMNS = (
    "window_start TIMESTAMP, gpu_id STRING, field INT, count BIGINT, min DOUBLE, max DOUBLE, mean DOUBLE, "
    "last DOUBLE, p50 DOUBLE, p95 DOUBLE, increase DOUBLE, covered_s DOUBLE"
)


def window(gpu: str, count: int = 2, **changes: Any) -> tuple[Any, ...]:
    values = {"min": 1.0, "max": 3.0, "mean": 2.0, "last": 3.0, "p50": 1.0, "p95": 1.0}
    values |= {"increase": 1.0, "covered_s": 10.0} | changes
    return (datetime(2025, 7, 18, tzinfo=UTC), gpu, 156, count, *values.values())


def test_a_window_that_differs_is_named(spark: SparkSession) -> None:
    reference_rows = [window(gpu) for gpu in "abcdefg"]
    streamed_rows = [
        window("a", mean=2.0 + 1e-12, p50=1.005),
        window("b", p50=1.02),
        window("c", count=3),
        window("d", increase=1.1),
        # Two rows of one window add up; their quantiles and last values are not compared.
        window("e", count=1, increase=0.25, covered_s=5.0, p50=9.0),
        window("e", count=1, increase=0.75, covered_s=5.0, last=7.0),
        window("f", max=4.0),
        window("x"),
    ]
    frames = (spark.createDataFrame(rows, COLUMNS) for rows in (streamed_rows, reference_rows))
    found = {row.gpu_id: row.difference for row in differences(*frames).collect()}
    expected = {"b": "quantile", "c": "count", "d": "increase", "f": "range", "g": "missing"}
    assert found == expected | {"x": "unexpected"}


def test_the_api_and_the_reference_agree(spark: SparkSession, tables: Path, reader: TableReader) -> None:
    whole = Span(BEGIN_MS, BEGIN_MS + MINUTES * MINUTE_MS)
    totals = fleet.totals(reader, whole)
    rollups = read_table(spark, Tables(str(tables)), "rollups_10s").cache()

    def by_group(frame: Any) -> dict[str, Any]:
        return {row[0]: row.asDict() for row in frame.collect()}

    busy = by_group(reference.utilization(rollups, "hostname"))
    for one in fleet.utilization(totals, "host"):
        assert one.gpu_util_percent == pytest.approx(busy[str(one.group)]["gpu_util_percent"])
        assert one.sm_active_share == pytest.approx(busy[str(one.group)]["sm_active_share"])
    used = by_group(reference.energy(rollups, "gpu_id"))
    for each in fleet.energy(totals, "gpu"):
        assert each.energy_wh == pytest.approx(used[str(each.group)]["energy_wh"])
    throttled = by_group(reference.throttling(rollups, "gpu_id"))
    for gpu in fleet.health(totals, find_gpus(reader, whole), []):
        share = throttled[gpu.gpu_id]["thermal_throttled_share"]
        assert gpu.thermal_throttled_share == pytest.approx(share)
    reported = load_thresholds()
    minutes = read_table(spark, Tables(str(tables)), "rollups_1m")
    idle = reference.idle(minutes, MINUTE_MS, reported.idle_occupied.gpu_util_max_percent).collect()
    found = {one.gpu_id: one.idle_s for one in find_idle(reader, whole, reported).gpus if one.idle_s}
    assert found.keys() == {row.gpu_id for row in idle if row.workload}
