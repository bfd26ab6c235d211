"""The whole way on Spark: a simulated fleet through a broker and the connector into tables and topics."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from penstock.jobs.maintenance import Maintenance
from penstock.telemetry.message import TOPIC
from penstock.telemetry.outlet import TopicOutlet
from penstock.telemetry.pipeline.batches import Settings
from penstock.telemetry.pipeline.jobs import Job
from penstock.telemetry.pipeline.names import ALERTS, DEAD_LETTERS
from penstock.telemetry.pipeline.progress import Progress
from penstock.telemetry.pipeline.tables import TABLES, Tables
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.simulate.dirt import Shares
from penstock.telemetry.simulate.run import Scenario, Simulation
from penstock.telemetry.thresholds import load_thresholds
from penstock.testing import broker
from tests.telemetry.pipeline.finishing import complete
from tests.telemetry.pipeline.messages import NOW_MS


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(timeout=60)
        yield running.bootstrap


def simulated(bootstrap: str, start_ms: int, dirt: Shares) -> Simulation:
    """Five minutes of a small fleet, in the topic."""
    outlet = TopicOutlet(bootstrap, TOPIC, "test")
    scenario = Scenario(hosts=2, seed=3, start_ms=start_ms, duration_s=300.0, dirt=dirt, late_s=120.0)
    simulation = Simulation(scenario, outlet)
    simulation.run(lambda second: True, lambda step_s: None)
    outlet.finish()
    return simulation


def values(bootstrap: str, topic: str) -> list[bytes]:
    """All that a topic holds."""
    reading = {"group.id": "test", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": bootstrap, **reading})
    consumer.subscribe([topic])
    found: list[bytes] = []
    while (message := consumer.poll(120)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def test_the_tables_have_the_produced_samples(spark: SparkSession, bootstrap: str, tmp_path: Path) -> None:
    dirt = Shares(late=0.002, duplicates=0.01, out_of_order=0.01, malformed=0.002, sentinels=0.002)
    began_ms = now_ms() - 3_600_000
    first = simulated(bootstrap, began_ms, dirt).summary()
    registry = CollectorRegistry()
    progress = Progress(registry)
    settings = Settings(load_thresholds(), shards=2)
    job = Job(bootstrap, TOPIC, str(tmp_path), settings, until_end=True, most_per_batch=15_000)
    query = complete(spark, job, progress).query
    # Each batch but the last leaves something, and Spark's progress has the number.
    for reported in query.recentProgress[:1]:
        progress.saw(reported)
        assert progress.lag == first["sent"] - reported["numInputRows"] > 0
    progress.saw(query.lastProgress)
    assert progress.lag == 0
    # A query that goes on takes what came since, and nothing again.
    second = simulated(bootstrap, began_ms + 300_000, Shares()).summary()
    complete(spark, job, progress)
    tables = Tables(str(tmp_path))
    sent = [int(str(each["sent"])) for each in (first, second)]
    assert progress.consumed == sum(sent) == sum(progress.totals.values())
    assert tables.open("samples").to_pyarrow_table().num_rows == progress.totals["valid"]
    assert progress.totals["valid"] > 0.98 * sum(sent)
    assert progress.totals["duplicates"] > 0
    assert (
        registry.get_sample_value("penstock_pipeline_rows_total", {"verdict": "valid"})
        == progress.totals["valid"]
    )
    # All windows were closed when each of the two ended.
    for rollup in ("rollups_10s", "rollups_1m", "rollups_1h"):
        counts = tables.open(rollup).to_pyarrow_table(columns=["count"])["count"]
        assert sum(counts.to_pylist()) == progress.totals["valid"], rollup
    samples = tables.open("samples").to_pyarrow_table(columns=["gpu_id", "field", "at"])
    assert samples.group_by(["gpu_id", "field", "at"]).aggregate([]).num_rows == samples.num_rows
    dead = tables.open("dead_letters").to_pyarrow_table(columns=["reason"])["reason"].to_pylist()
    assert dead.count("late") == progress.totals["late"]
    assert (
        len(values(bootstrap, DEAD_LETTERS))
        == progress.totals["dead_lettered"]
        == len(dead) - dead.count("late")
    )
    published = {(a["rule"], a["subject"], a["at"]) for a in map(json.loads, values(bootstrap, ALERTS))}
    assert len(published) == tables.open("alerts").to_pyarrow_table().num_rows > 0


def test_maintenance_leaves_the_rows_and_fewer_files(spark: SparkSession, tmp_path: Path) -> None:
    from penstock.jobs.storage import Store
    from penstock.telemetry.pipeline.tables import timestamps, write_files

    tables, schema = Tables(str(tmp_path)), TABLES["batches"]
    for batch_id in range(3):
        row = [timestamps([NOW_MS]), *([batch_id],) * 6, timestamps([NOW_MS])]
        files = write_files(Store(str(tmp_path)), "batches", pa.table(row, schema=schema))
        assert tables.commit("batches", files, "query", batch_id)
        assert not tables.commit("batches", files, "query", batch_id)
    maintenance = Maintenance(spark, Tables(str(tmp_path)), list(TABLES), every=1, retention_hours=0)
    maintenance.run(["batches"])
    maintenance.close()
    table = tables.open("batches")
    assert sorted(table.to_pyarrow_table()["batch_id"].to_pylist()) == [0, 1, 2]
    assert len(list((tmp_path / "batches").glob("day=*/*.parquet"))) == 1
    assert table.transaction_version("query") == 2
