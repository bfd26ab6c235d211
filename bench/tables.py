"""Rows a second into Delta tables of a topic: `penstock table run`, append and upsert, `local[2]`.

Telemetry messages of 282 bytes in 4 partitions, with 256 keys, whose columns are inferred. The tables are in
a local folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile

from bench.load import topic
from bench.spark import fill
from bench.table import Contender, Metric, Row, Values
from lab.home import require

MESSAGES = 2_000_000
PARTITIONS = 4
TIMEOUT_S = 900


def _tables(contender: Contender, scale: float) -> Values:
    require("java")
    bootstrap = contender.server.bootstrap
    with (
        topic(bootstrap, PARTITIONS) as name,
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder,
    ):
        fill(bootstrap, name, max(1_000_000, int(MESSAGES * scale)))
        done = subprocess.run(
            [sys.executable, "-m", "bench.tables_session", bootstrap, name, folder],
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
    measured: Values = json.loads(done.stdout.splitlines()[-1])
    return measured


ROWS = (
    Row(
        "tables",
        "Telemetry messages of 282 bytes go from a topic into a Delta table with `penstock table run`",
        (Metric("append, rows/s", "", True), Metric("upsert, rows/s", "", True)),
        _tables,
        heavy=True,
        where="in decoding of JSON and in the conversion of its values to columns, in Python workers.",
    ),
)
