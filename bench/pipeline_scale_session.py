"""`python -m bench.pipeline_scale_session BOOTSTRAP TOPIC TABLES MASTER BATCH_ROWS`: its cost, as JSON.

Executors are processes below the driver's JVM, and Python workers below executors.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from bench.process import cpu_seconds, family, resident_bytes
from penstock.telemetry.pipeline.batches import BatchReport, Settings
from penstock.telemetry.pipeline.jobs import Job, new_session, start
from penstock.telemetry.thresholds import load_thresholds

EXECUTOR = b"CoarseGrainedExecutorBackend"
SHARDS = 4


def is_executor(pid: int) -> bool:
    return EXECUTOR in Path(f"/proc/{pid}/cmdline").read_bytes()


def measured() -> tuple[float, float, float]:
    """CPU of executors and of the driver until now, and memory of the largest executor with its workers."""
    executors = [pid for pid in family(os.getpid()) if is_executor(pid)]
    used_s = cpu_seconds(*executors)
    return used_s, cpu_seconds(os.getpid()) - used_s, max(map(resident_bytes, executors), default=0)


def main(bootstrap: str, topic: str, tables: str, master: str, batch_rows: int) -> None:
    done: list[tuple[float, int, tuple[float, float, float]]] = []

    def report(batch: BatchReport) -> None:
        done.append((time.monotonic(), batch.counts.consumed, measured()))
        print(f"batch {batch.batch_id}: {batch.counts.consumed}", file=sys.stderr)

    spark = new_session(master, "penstock-bench")
    settings = Settings(load_thresholds(), shards=SHARDS)
    job = Job(bootstrap, topic, tables, settings, most_per_batch=batch_rows, until_end=True)
    start(spark, job, report).wait()
    if len(done) < 3:
        raise RuntimeError(f"{len(done)} batches are too few to measure")
    (first_s, _, first), (last_s, _, last) = done[0], done[-1]
    measured = {
        "samples": sum(count for _, count, _ in done[1:]),
        "seconds": last_s - first_s,
        "executor CPU": last[0] - first[0],
        "driver CPU": last[1] - first[1],
        "executor memory": max(each[2] for _, _, each in done),
    }
    print(json.dumps(measured))
    spark.stop()


if __name__ == "__main__":
    bootstrap, topic, tables, master, batch_rows = sys.argv[1:]
    main(bootstrap, topic, tables, master, int(batch_rows))
