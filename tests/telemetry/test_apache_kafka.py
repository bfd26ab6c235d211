"""No lock-in: collectors and pipeline on Apache Kafka itself, where Maven Central is at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.cli.app import app
from penstock.telemetry.message import decode
from penstock.telemetry.pipeline.batches import Settings
from penstock.telemetry.pipeline.jobs import Job
from penstock.telemetry.pipeline.names import ALERTS, DEAD_LETTERS
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.finishing import complete
from tests.telemetry.pipeline.reading import messages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOPIC = "fleet.simulated"


def collect(capfd: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """Run a collector, and return what it says at its end."""
    app(["telemetry", *arguments, "--speed", "0", "--json"], prog_name="penstock", standalone_mode=False)
    return json.loads(capfd.readouterr().out)


def test_a_recording_is_replayed(real_kafka: str, capfd: pytest.CaptureFixture[str]) -> None:
    topic = "fleet.recorded"
    reported = collect(capfd, "replay", "sample:h200", "--bootstrap", real_kafka, "--topic", topic)
    found = messages(real_kafka, topic)
    assert len(found) == reported["acknowledged"] > 1000
    assert {decode(message.value()).gpu_id for message in found} == {found[0].key().decode()}
    assert ("source", b"replay") in found[0].headers()


def test_a_simulated_fleet_through_the_pipeline(
    real_kafka: str, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All that was produced is in the tables, once, or accounted for; and there are alerts."""
    began = ["--start", str(now_ms() - 3_600_000), "--duration", "300", "--hosts", "2", "--seed", "3"]
    dirt = ["--duplicates", "0.01", "--malformed", "0.002", "--partitions", "2"]
    reported = collect(capfd, "simulate", *began, *dirt, "--bootstrap", real_kafka, "--topic", TOPIC)
    settings = Settings(load_thresholds(), shards=2)
    job = Job(real_kafka, TOPIC, str(tmp_path), settings, until_end=True)
    complete(spark, job)
    tables = Tables(str(tmp_path))
    counted = tables.open("batches").to_pyarrow_table().to_pylist()
    sums = {kind: sum(row[kind] for row in counted) for kind in ("consumed", "valid", "dead_lettered")}
    sums["duplicates"] = sum(row["duplicates"] for row in counted)
    assert sums["consumed"] == reported["acknowledged"] == len(messages(real_kafka, TOPIC))
    assert sums["consumed"] == sums["valid"] + sums["dead_lettered"] + sums["duplicates"]
    assert tables.open("samples").to_pyarrow_table(columns=["offset"]).num_rows == sums["valid"]
    assert sums["duplicates"] > 0
    assert len(messages(real_kafka, DEAD_LETTERS)) == sums["dead_lettered"] > 0
    published = [json.loads(message.value()) for message in messages(real_kafka, ALERTS)]
    alerts = tables.open("alerts").to_pyarrow_table(columns=["rule", "subject"]).to_pylist()
    assert {(a["rule"], a["subject"]) for a in published} == {(a["rule"], a["subject"]) for a in alerts}
    assert any(alert["state"] == "open" for alert in published)
