"""Rows a second into Spark of a tiered topic: from brokers, and from the archive on a local S3 server.

Telemetry messages of 282 bytes in 4 partitions. What is read is in the archive, and on the broker's disk as
well, so that the broker serves from the page cache. A sink takes rows and forgets them, `local[2]`, all
queries in turn in one session. The rate of an executor core is rows by the CPU of the JVM and its workers:
other load does not change it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from bench.archive import local_s3
from bench.spark import TIMEOUT_S, fill
from bench.table import Contender, Metric, Row, Values, fresh
from lab.home import require

MESSAGES = 2_000_000
TOPIC = "scanned"
CONFIGS = {"remote.storage.enable": "true", "segment.bytes": str(16 << 20), "retention.ms": "-1"}


def _scan(contender: Contender, scale: float) -> Values:
    require("java")
    with ExitStack() as stack:
        address, settings, options = stack.enter_context(local_s3())
        server = stack.enter_context(fresh(contender, settings))
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 4, 1, config=CONFIGS)])[TOPIC].result(60)
        fill(server.bootstrap, TOPIC, int(MESSAGES * scale))
        return measured(server.bootstrap, server.pid, address, options)


def measured(bootstrap: str, broker_pid: int, address: str, options: Path | None) -> Values:
    """What a session of its own process measures."""
    words = [bootstrap, TOPIC, str(broker_pid), address, str(options or "")]
    done = subprocess.run(
        [sys.executable, "-m", "bench.scan_session", *words],
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    found: Values = json.loads(done.stdout.splitlines()[-1])
    return found


ROWS = (
    Row(
        "scan",
        "Spark reads telemetry messages of 282 bytes from the archive on a local S3 server, and from brokers",
        (
            Metric("rows/s per executor core, brokers", "", True),
            Metric("rows/s per executor core, archive", "", True),
            Metric("rows/s per executor core, archive, value and offset", "", True),
            Metric("rows/s per executor core, archive, offset and timestamp", "", True),
            Metric("all columns, against", "× brokers", True, limit=2),
            Metric("value and offset, against", "× brokers", True, limit=2),
            Metric("offset and timestamp, against", "× brokers", True, limit=2),
            Metric("CPU of the broker", "of that without the archive", False, limit=0.02),
        ),
        _scan,
        heavy=True,
        alone="Kafka has no archive that clients can read",
        where=(
            "in Spark: most of the CPU of a query is Java and the pipe to it, and decoding is "
            "most of a task, wherever the bytes come from. Columns that are not named save both."
        ),
    ),
)
