"""`python -m bench.spark_session BOOTSTRAP TOPIC JARS`: one Spark session's rows/s, as JSON.

A process of its own: Java is gone with it.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.process import cpu_seconds

RUNS = 5
SCHEMA = (
    "timestamp string, metric_name string, gpu_id string, device string, hostname string, value double, "
    "labels map<string,string>"
)


def main(bootstrap: str, topic: str, jars: str) -> None:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.jars", jars)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")

    def load(source: str, **options: str) -> DataFrame:
        reader = session.read.format(source).option("kafka.bootstrap.servers", bootstrap)
        return reader.option("subscribe", topic).options(**options).load()

    def parsed(rows: DataFrame) -> DataFrame:
        value = F.from_json(F.col("value").cast("string"), SCHEMA).alias("v")
        return rows.select("partition", "offset", value).select("partition", "offset", "v.*")

    typed = load("penstock", valueFormat="json", valueSchema=SCHEMA)
    queries = {
        "raw rows/s": load("penstock"),
        "raw rows/s, JVM connector": load("kafka"),
        "typed rows/s": typed.select("partition", "offset", "value.*"),
        "typed rows/s, JVM connector": parsed(load("kafka")),
    }
    counts = {name: query.count() for name, query in queries.items()}
    if len(set(counts.values())) != 1:
        raise RuntimeError(f"the connectors do not agree: {counts}")
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in queries}
    for run in range(RUNS + 1):
        for name, query in queries.items():
            took = _seconds(query)
            if run:
                seconds[name].append(took)
    rates = {}
    for name, runs in seconds.items():
        wall_s, cpu_s = (statistics.median(column) for column in zip(*runs, strict=True))
        rates[name] = counts[name] / wall_s
        rates[name.replace("rows/s", "CPU per row")] = cpu_s / counts[name] * 1e6
    print(json.dumps(rates))
    session.stop()


def _seconds(query: DataFrame) -> tuple[float, float]:
    """Wall-clock time, and CPU of the JVM and its Python workers."""
    began, used = time.perf_counter(), cpu_seconds(os.getpid())
    query.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began, cpu_seconds(os.getpid()) - used


if __name__ == "__main__":
    main(*sys.argv[1:])
