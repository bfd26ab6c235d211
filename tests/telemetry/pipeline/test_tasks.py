"""The stages of a batch as functions from data frame to data frame, on literal frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.jobs.storage import Store
from penstock.telemetry.message import format_timestamp
from penstock.telemetry.pipeline.shard import ROWS
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.pipeline.tasks import (
    ShardResult,
    ShardTask,
    dealt,
    processed,
    results_of,
    without_messages,
)
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.messages import NOW_MS, messages, value

pytestmark = pytest.mark.slow

TASKS = 2


def task(place: Path, **changes: Any) -> ShardTask:
    reported: dict[str, Any] = {
        "tables": Store(str(place / "tables")),
        "state": Store(str(place / "state")),
        "batch_id": 0,
        "shards": TASKS,
        "watermark_ms": 0,
        "read_at_ms": NOW_MS,
        "ahead_ms": 60_000,
        "before": [],
        "topics": None,
        "thresholds": load_thresholds(),
    }
    return ShardTask(**{**reported, **changes})


def results(frame: DataFrame) -> list[ShardResult]:
    return sorted(
        (ShardResult.of(row) for row in frame.toArrow().to_pylist()), key=lambda result: result.task
    )


def stored(place: Path, found: list[ShardResult], table: str) -> list[dict[str, Any]]:
    """The rows of the files that the tasks have written, after a commit as the driver makes it."""
    tables = Tables(str(place / "tables"))
    files = [file for result in found for file in result.files if file.table == table]
    tables.commit(table, files, "query", 0)
    return list(tables.open(table).to_pyarrow_table().to_pylist())


def test_all_stages_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    late = format_timestamp(NOW_MS - 60_000)
    sent = [
        value(gpu_id="GPU-1", value=40.0),
        value(gpu_id="GPU-1", value=41.0),  # the same GPU, field and time
        value(gpu_id="GPU-2", value=42.0),
        value(gpu_id="GPU-3", timestamp=late),
        value(gpu_id="GPU-4", value=1000.0),
        b"not a sample",
    ]
    frame = spark.createDataFrame(pa.Table.from_batches([messages(sent)])).repartition(2)
    found = results(frame.transform(results_of, task(tmp_path, watermark_ms=NOW_MS - 30_000)))
    assert [result.task for result in found] == [0, 1]
    assert sum(result.read for result in found) == len(sent)
    names = ("valid", "duplicates", "late", "dead_lettered")
    counts = [sum(getattr(result.counts, name) for result in found) for name in names]
    assert counts == [2, 1, 1, 2]
    samples = stored(tmp_path, found, "samples")
    assert sorted((row["gpu_id"], row["value"]) for row in samples) == [("GPU-1", 40.0), ("GPU-2", 42.0)]
    letters = {row["offset"]: row["reason"] for row in stored(tmp_path, found, "dead_letters")}
    assert letters == {3: "late", 4: "out of range", 5: "not a sample"}


def test_blocks_go_to_the_partition_of_their_task(spark: SparkSession) -> None:
    blocks = spark.createDataFrame(
        [(0, b"a", 1), (2, b"b", 1), (2, b"c", 1)], "task INT, rows BINARY, read INT"
    )
    found = blocks.transform(dealt, 3).withColumn("partition", F.spark_partition_id()).collect()
    assert sorted((bytes(row.rows), row.partition) for row in found) == [(b"a", 0), (b"b", 2), (b"c", 2)]


def test_a_task_without_messages_closes_the_windows_of_its_state(spark: SparkSession, tmp_path: Path) -> None:
    sample = {"gpu_id": "GPU-1", "field": 150, "at": NOW_MS, "value": 40.0, "hostname": "host-1"}
    rows = pa.Table.from_pylist([{**sample, "topic": "t", "partition": 0, "offset": 0}], ROWS)
    first = task(tmp_path, shards=1).run(0, rows, 1)
    assert {file.table for file in first.files} == {"samples"}
    closing = task(tmp_path, shards=1, before=[first.state], closes=True)
    found = results(without_messages(spark, 1).transform(processed, closing))
    assert [(result.read, result.counts.consumed) for result in found] == [(0, 0)]
    for table in ("rollups_10s", "rollups_1m", "rollups_1h"):
        (row,) = stored(tmp_path, found, table)
        assert (row["gpu_id"], row["count"], row["mean"]) == ("GPU-1", 1, 40.0)
