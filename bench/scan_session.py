"""`python -m bench.scan_session BOOTSTRAP TOPIC PID ADDRESS OPTIONS`: rows/s of one session, as JSON.

PID is the broker's, ADDRESS and OPTIONS (a file, or nothing) those of its archive. Only what the archive has
is read.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructType

from bench.process import cpu_seconds, thread_seconds
from penstock.spark import PenstockDataSource
from penstock.spark.archives import RangeTask

RUNS = 5
IDLE_S = 5.0
COPY_TIMEOUT_S = 300.0
#: at least this part of the records is in sealed segments, and will be copied
COPIED = 0.8


def main(bootstrap: str, topic: str, pid: str, address: str, options: str) -> None:
    broker = int(pid)
    archive = {"archive": address, **({"archiveStoreConfig": options} if options else {})}
    end = _copied(bootstrap, topic, archive)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")

    def load(**more: str) -> DataFrame:
        reader = session.read.format("penstock").option("kafka.bootstrap.servers", bootstrap)
        ending = json.dumps({topic: {str(partition): offset for partition, offset in end.items()}})
        return reader.option("subscribe", topic).option("endingOffsets", ending).options(**more).load()

    queries = {
        "brokers": load(),
        "archive": load(**archive),
        "archive, value and offset": load(**archive, columns="value,offset"),
        "archive, offset and timestamp": load(**archive, columns="offset,timestamp"),
    }
    count = sum(end.values())
    counts = {name: query.count() for name, query in queries.items()}
    if set(counts.values()) != {count}:
        raise RuntimeError(f"the sources do not agree: {counts}, and {count} were copied")
    idle = _idle(broker)
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in queries}
    for run in range(RUNS + 1):
        for name, query in queries.items():
            took = _costs(query, broker, idle)
            if run:
                runs[name].append(took)
    print(f"idle broker: {idle:.4f} of a core; (executors, broker) seconds: {runs}", file=sys.stderr)
    rates, brokers = {}, {}
    for name, found in runs.items():
        executor_s, brokers[name] = (statistics.median(column) for column in zip(*found, strict=True))
        rates[name] = count / executor_s
    print(
        json.dumps(
            {f"rows/s per executor core, {name}": rate for name, rate in rates.items()}
            | {
                "all columns, against": rates["archive"] / rates["brokers"],
                "value and offset, against": rates["archive, value and offset"] / rates["brokers"],
                "offset and timestamp, against": rates["archive, offset and timestamp"] / rates["brokers"],
                "CPU of the broker": max(0.0, brokers["archive"]) / brokers["brokers"],
            }
        )
    )
    session.stop()


def _copied(bootstrap: str, topic: str, archive: dict[str, str]) -> dict[int, int]:
    """Where the copies of each partition end, once most of it is copied."""
    options = CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap, "subscribe": topic, **archive})
    columns = StructType()
    for name in ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"):
        columns.add(name, BinaryType())
    deadline = time.monotonic() + COPY_TIMEOUT_S
    while True:
        tasks = PenstockDataSource(options).reader(columns).partitions()
        found = {
            task.partition: task.part.stop
            for task in tasks
            if isinstance(task, RangeTask) and task.part is not None
        }
        total = sum(task.stop for task in tasks if isinstance(task, RangeTask))
        if found and sum(found.values()) > COPIED * total and len(found) == len(tasks):
            return found
        if time.monotonic() > deadline:
            raise RuntimeError(
                f"{sum(found.values())} of {total} records were copied in {COPY_TIMEOUT_S:g} s"
            )
        time.sleep(1.0)


def _idle(pid: int) -> float:
    """The share of a core that the broker takes while nobody asks it for anything."""
    before = thread_seconds(pid)
    time.sleep(IDLE_S)
    return (thread_seconds(pid) - before) / IDLE_S


def _costs(query: DataFrame, broker: int, idle: float) -> tuple[float, float]:
    """CPU of the JVM and its Python workers, and of the broker beyond what it takes when idle."""
    began, used, served = time.perf_counter(), cpu_seconds(os.getpid()), thread_seconds(broker)
    query.write.format("noop").mode("overwrite").save()
    served_s = thread_seconds(broker) - served - idle * (time.perf_counter() - began)
    return cpu_seconds(os.getpid()) - used, served_s


if __name__ == "__main__":
    main(*sys.argv[1:])
