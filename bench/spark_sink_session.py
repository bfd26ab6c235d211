"""`python -m bench.spark_sink_session BOOTSTRAP TOPIC ROWS BATCHES`: what one Spark session writes, as JSON.

A process of its own: Java is gone with it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.process import cpu_seconds

RUNS = 5
VALUE_BYTES = 282
ROWS_PER_BATCH = 100
DELIVERIES: Final = {"": "exactly_once", ", at least once": "at_least_once"}


def main(bootstrap: str, topic: str, rows: int, batches: int) -> None:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    numbers = session.range(rows, numPartitions=2)
    value = F.rpad(F.col("id").cast("string"), VALUE_BYTES, "x").alias("value")
    frame = numbers.select(F.concat(F.lit("GPU-"), F.col("id") % 256).alias("key"), value).cache()
    frame.count()
    took: dict[str, list[tuple[float, float]]] = {name: [] for name in DELIVERIES}
    for run in range(RUNS + 1):
        for name, delivery in DELIVERIES.items():
            measured = _seconds(frame, bootstrap, topic, delivery)
            if run:
                took[name].append(measured)
    values = {}
    for name, runs in took.items():
        wall_s, cpu_s = (statistics.median(column) for column in zip(*runs, strict=True))
        values[f"rows/s{name}"] = rows / wall_s
        values[f"CPU per row{name}"] = cpu_s / rows * 1e6
    for name, delivery in DELIVERIES.items():
        values[f"batch{name}"] = _batch_ms(session, bootstrap, topic, delivery, batches)
    print(json.dumps(values))
    session.stop()


def _seconds(frame: DataFrame, bootstrap: str, topic: str, delivery: str) -> tuple[float, float]:
    """Wall-clock time, and CPU of the JVM and its Python workers."""
    began, used = time.perf_counter(), cpu_seconds(os.getpid())
    writer = frame.write.format("penstock").option("kafka.bootstrap.servers", bootstrap)
    writer.option("topic", topic).option("delivery", delivery).mode("append").save()
    return time.perf_counter() - began, cpu_seconds(os.getpid()) - used


def _batch_ms(session: SparkSession, bootstrap: str, topic: str, delivery: str, batches: int) -> float:
    """The median time of a small micro-batch, from its trigger to its commit."""
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        rates = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS_PER_BATCH)
        rows = rates.option("numPartitions", 2).load().selectExpr("CAST(value AS STRING) AS value")
        writer = rows.writeStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
        writer = writer.option("topic", topic).option("delivery", delivery)
        query = writer.option("checkpointLocation", str(Path(folder) / "checkpoint")).start()
        took: dict[int, float] = {}
        while len(took) <= batches:
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            for progress in query.recentProgress:
                took[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
            time.sleep(0.1)
        query.stop()
    # The first batch starts processes.
    return statistics.median(took[batch] for batch in sorted(took)[1:])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
