"""`python -m bench.pipeline_scale_session BOOTSTRAP TOPIC TABLES MASTER BATCH_ROWS CORES`: its cost, as JSON.

Executors are processes below the driver's JVM, and Python workers below executors. Each executor with its
workers is held to CORES cores by a control group, from the end of the first batch; 0 does not limit them.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyspark

from bench.process import cpu_seconds, family, read, resident_bytes
from lab.cgroup import cpu_limited
from penstock.jobs.session import new_session, session_settings
from penstock.telemetry.pipeline.batches import BatchReport, Settings
from penstock.telemetry.pipeline.jobs import Job, start
from penstock.telemetry.pipeline.names import WORKER_DAEMON
from penstock.telemetry.thresholds import load_thresholds

EXECUTOR = "CoarseGrainedExecutorBackend"
SHARDS = 4
WARM_UP_BATCHES = 2


def is_executor(pid: int) -> bool:
    return EXECUTOR in read(Path(f"/proc/{pid}/cmdline"))


def measured() -> tuple[float, float, float]:
    """CPU of executors and of the driver until now, and memory of the largest executor with its workers."""
    executors = [pid for pid in family(os.getpid()) if is_executor(pid)]
    used_s = cpu_seconds(*executors)
    return used_s, cpu_seconds(os.getpid()) - used_s, max(map(resident_bytes, executors), default=0)


def main(bootstrap: str, topic: str, tables: str, master: str, batch_rows: int, cores: float) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as home, ExitStack() as limits:
        os.environ["SPARK_HOME"] = spark_home(Path(home))
        run(bootstrap, topic, tables, master, batch_rows, partial(limit, limits, cores))


def limit(limits: ExitStack, cores: float) -> None:
    """Hold each executor with its workers to a share of the cores. Workers that start later inherit it."""
    if cores:
        executors = [pid for pid in family(os.getpid()) if is_executor(pid)]
        limits.enter_context(cpu_limited((f"executor-{pid}", cores, family(pid)) for pid in executors))


def spark_home(folder: Path) -> str:
    """Spark keeps the files of executors below its home, which must not be that of the environment."""
    for each in Path(pyspark.__file__).parent.iterdir():
        if each.name != "work":
            (folder / each.name).symlink_to(each)
    return str(folder)


def run(
    bootstrap: str, topic: str, tables: str, master: str, batch_rows: int, limit_executors: Callable[[], None]
) -> None:
    done: list[tuple[float, int, tuple[float, float, float]]] = []

    def report(batch: BatchReport) -> None:
        if not done:
            limit_executors()
        done.append((time.monotonic(), batch.counts.consumed, measured()))
        print(f"batch {batch.batch_id}: {batch.counts.consumed}", file=sys.stderr)

    spark = new_session(master, "penstock-bench", session_settings(master, WORKER_DAEMON))
    settings = Settings(load_thresholds(), shards=SHARDS, delay_ms=0)
    job = Job(bootstrap, topic, tables, settings, most_per_batch=batch_rows, until_end=True)
    start(spark, job, report).wait()
    if len(done) < WARM_UP_BATCHES + 2:
        raise RuntimeError(f"{len(done)} batches are too few to measure")
    counted = done[WARM_UP_BATCHES:]
    (first_s, _, first), (last_s, _, last) = done[WARM_UP_BATCHES - 1], done[-1]
    cost = {
        "samples": sum(count for _, count, _ in counted),
        "seconds": last_s - first_s,
        "executor CPU": last[0] - first[0],
        "driver CPU": last[1] - first[1],
        "executor memory": max(each[2] for _, _, each in done),
    }
    print(json.dumps(cost))
    spark.stop()


if __name__ == "__main__":
    bootstrap, topic, tables, master, batch_rows, cores = sys.argv[1:]
    main(bootstrap, topic, tables, master, int(batch_rows), float(cores))
