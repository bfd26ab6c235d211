"""The code on the page about Spark runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock.testing import broker
from tests.backup.clusters import take
from tests.spark.exactly_once.sinks import committed_values
from tests.spark.topics import Topics

PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def example(word: str) -> str:
    """The example that has the word."""
    (found,) = [
        each
        for each in re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
        if word in each
    ]
    return str(found)


def test_the_examples_run(spark: SparkSession, topics: Topics, topic: str) -> None:
    names: dict[str, Any] = {"spark": spark}
    streaming = example("readStream").replace("localhost:9092", topics.bootstrap)
    exec(streaming.replace("gpu-telemetry", topic), names)
    assert names["rows"].isStreaming
    assert names["rows"].columns[:3] == ["key", "value", "topic"]

    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", topics.bootstrap)
    names["reader"] = reader.option("subscribe", topic)
    exec(example("valueSchema"), names)
    columns = ["offset", "gpu_id", "value"]
    assert names["typed"].select("offset", "value.gpu_id", "value.value").columns == columns


def test_the_example_of_a_backup_reads_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
    with broker() as running:
        topics = Topics(running.bootstrap)
        topics.create("orders", 1)
        topics.fill("orders", [b"one", b"two"])
        take(running.bootstrap, tmp_path)
    names: dict[str, Any] = {"spark": spark}
    written = example("asOf").replace("s3://backups/kafka", str(tmp_path))
    exec(written.replace("2026-11-17T12:00", "latest"), names)
    assert [bytes(row.value) for row in names["rows"].collect()] == [b"one", b"two"]


def test_the_example_of_an_exactly_once_sink_writes_its_rows(spark: SparkSession, tmp_path: Path) -> None:
    with broker(config={"transaction.two.phase.commit.enable": "true"}) as running:
        topics = Topics(running.bootstrap)
        topics.create("source", 1)
        topics.create("totals", 1)
        topics.fill("source", [b"one", b"two"])
        reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", running.bootstrap)
        names: dict[str, Any] = {
            "rows": reader.option("subscribe", "source").option("startingOffsets", "earliest").load()
        }
        written = example('"exactly_once"').replace("localhost:9092", running.bootstrap)
        exec(written.replace("/var/lib/queries/totals", str(tmp_path)), names)
        try:
            names["query"].processAllAvailable()
        finally:
            names["query"].stop()
        assert committed_values(running.bootstrap, "totals") == ["one", "two"]
