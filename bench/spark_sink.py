"""Rows a second out of Spark: the exactly-once sink beside the at-least-once sink, on the same broker.

Messages of 282 bytes with keys into 4 partitions, `local[2]`. Both deliveries are measured in one session, in
turn, after a warm-up; the medians count. The latency of a batch is that of a stream with batches of 100 rows.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from bench.load import topic
from bench.table import Contender, Metric, Row, Values, fresh
from lab.home import require

ROWS_WRITTEN = 1_000_000
BATCHES = 40
TIMEOUT_S = 900
SETTINGS = {"transaction.two.phase.commit.enable": "true"}


def _spark_sink(contender: Contender, scale: float) -> Values:
    require("java")
    with fresh(contender, SETTINGS) as server, topic(server.bootstrap) as name:
        arguments = [
            server.bootstrap,
            name,
            str(int(ROWS_WRITTEN * scale)),
            str(max(10, int(BATCHES * scale))),
        ]
        done = subprocess.run(
            [sys.executable, "-m", "bench.spark_sink_session", *arguments],
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {
        **measured,
        "rows/s, against": measured["rows/s"] / measured["rows/s, at least once"],
        "CPU, against": measured["CPU per row"] / measured["CPU per row, at least once"],
    }


ROWS = (
    Row(
        "spark-sink",
        "Spark writes messages of 282 bytes exactly once, and at least once",
        (
            Metric("rows/s", "", True),
            Metric("rows/s, at least once", "", True),
            Metric("rows/s, against", "× at least once", True, limit=0.85),
            Metric("CPU per row", "µs", False),
            Metric("CPU per row, at least once", "µs", False),
            Metric("CPU, against", "× at least once", False, limit=1.15),
            Metric("batch", "ms", False),
            Metric("batch, at least once", "ms", False),
        ),
        _spark_sink,
        heavy=True,
        alone="it needs two-phase commit (KIP-939), which Apache Kafka 4.3 does not have",
        where="in Spark: rows cross from the JVM to Python workers as Arrow batches.",
    ),
)
