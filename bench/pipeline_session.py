"""`python -m bench.pipeline_session BOOTSTRAP TOPIC TABLES WARM_UP_S MEASURED_S`: a pipeline's pace, as JSON.

The warm-up ends when a batch takes less than CAUGHT_UP_S, and after WARM_UP_S at the latest. A process of its
own: Java is gone with it.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.jobs.session import new_session, session_settings
from penstock.telemetry.pipeline.batches import BatchReport, Settings
from penstock.telemetry.pipeline.detectors.features import FEATURES, STEP_MS
from penstock.telemetry.pipeline.jobs import Job, start
from penstock.telemetry.pipeline.names import WORKER_DAEMON
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.thresholds import load_thresholds

#: a batch of so few seconds has no backlog
CAUGHT_UP_S = 10


def main(bootstrap: str, topic: str, tables: str, warm_up_s: int, measured_s: int) -> None:
    done: list[tuple[float, BatchReport]] = []
    spark = new_session("local[2]", "penstock-bench", session_settings("local[2]", WORKER_DAEMON))
    job = Job(bootstrap, topic, tables, Settings(load_thresholds()))
    query = start(spark, job, lambda report: done.append((time.time(), report))).query
    deadline_s = time.monotonic() + warm_up_s
    while time.monotonic() < deadline_s and not (done and _seconds(*done[-1]) < CAUGHT_UP_S):
        query.awaitTermination(1)
    warm = len(done)
    query.awaitTermination(measured_s)
    query.stop()
    measured = done[max(warm, 1) - 1 :]
    if len(measured) < 2:
        raise RuntimeError(f"{len(done)} batches are too few to measure a pace")
    for at_s, report in done:
        print(
            f"batch {report.batch_id}: {report.counts.consumed} in {_seconds(at_s, report):.1f} s",
            file=sys.stderr,
        )
    freshness = _freshness(Tables(tables), measured[1:])
    print(
        json.dumps(
            {
                "samples/s": sum(report.counts.consumed for _, report in measured[1:])
                / (measured[-1][0] - measured[0][0]),
                "freshness p50": float(np.percentile(freshness, 50)),
                "freshness p99": float(np.percentile(freshness, 99)),
                "longest batch": max(_seconds(*each) for each in measured[1:]),
            }
        )
    )
    spark.stop()


def _seconds(at_s: float, report: BatchReport) -> float:
    """The duration of a batch that was done at `at_s`."""
    return at_s - report.read_at_ms / 1000


def _freshness(tables: Tables, measured: list[tuple[float, BatchReport]]) -> list[float]:
    """Seconds from the sample that an alert is about to the end of its batch, for each alert."""
    sampled_ms = _sample_times(tables)
    seconds = []
    for at_s, report in measured:
        for alert in report.alerts:
            step_ms = alert.at_ms - STEP_MS
            if alert.rule != "silent":
                seconds.append(at_s - sampled_ms[alert.hostname, step_ms] / 1000)
    if not seconds:
        raise RuntimeError("there were no alerts whose freshness could be measured")
    print(f"{len(seconds)} alerts", file=sys.stderr)
    return seconds


def _sample_times(tables: Tables) -> dict[tuple[str, int], int]:
    """By host and step: when it was sampled. All GPUs of a host are sampled at once."""
    chosen: Any = pc.field("field") == FEATURES[0]
    rows = tables.open("samples").to_pyarrow_dataset().to_table(["hostname", "at"], chosen)
    at_ms = pc.divide(rows["at"].cast(pa.int64()), 1000).to_numpy()
    steps = (at_ms // STEP_MS * STEP_MS).tolist()
    return dict(zip(zip(rows["hostname"].to_pylist(), steps, strict=True), at_ms.tolist(), strict=True))


if __name__ == "__main__":
    bootstrap, topic, tables, *seconds = sys.argv[1:]
    main(bootstrap, topic, tables, *map(int, seconds))
