"""Collectors and the pipeline on a cluster that needs TLS and a password."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.cli import client_config
from penstock.telemetry.message import TOPIC
from penstock.telemetry.pipeline.batches import Settings
from penstock.telemetry.pipeline.jobs import Job
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.thresholds import load_thresholds
from penstock.testing import broker
from tests.cli.running import run_here
from tests.telemetry.pipeline.finishing import complete

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_samples_go_from_a_collector_into_tables(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with broker(secure=True) as running:
        security = dict(running.client_config)
        file = tmp_path / "client.properties"
        authority = tmp_path / "ca.pem"
        authority.write_text(security.pop("ssl.ca.pem"))
        security["ssl.truststore.location"] = str(authority)
        file.write_text("".join(f"{name}={value}\n" for name, value in security.items()))
        fleet = ["--hosts=1", "--duration=20", "--speed=0", "--malformed=0.01", "--json"]
        simulate = ["telemetry", "simulate", f"--bootstrap={running.bootstrap}", "--partitions=2", *fleet]
        try:
            assert run_here(f"--command-config={file}", *simulate) == 0
        finally:
            client_config.use(None)
        sent = json.loads(capsys.readouterr().out)["acknowledged"]
        settings = Settings(load_thresholds(), shards=1)
        place = str(tmp_path / "tables")
        job = Job(running.bootstrap, TOPIC, place, settings, until_end=True, security=security)
        assert security["sasl.password"] not in repr(job)
        # It also publishes dead letters and alerts to topics of the cluster.
        complete(spark, job)
    tables = Tables(job.tables)
    stored, refused = (
        tables.open(table).to_pyarrow_table().num_rows for table in ("samples", "dead_letters")
    )
    assert refused > 0
    assert stored + refused == sent
