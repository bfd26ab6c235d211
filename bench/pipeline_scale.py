"""The pipeline on executors in processes of their own, over preloaded samples.

CPU per sample must not depend on the size of the fleet, the driver's share must stay small, and a second
executor must halve the time. Batches have the same number of samples in all rows, and windows close as soon
as the samples have passed them, so that a few steps of a large fleet contain all the work. The first batches
warm up and do not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from functools import partial

from confluent_kafka.admin import AdminClient

from bench.load import topic
from bench.table import Contender, Metric, Row, Values
from lab.home import require
from penstock.telemetry.pipeline.names import ALERTS, DEAD_LETTERS

SAMPLES = 10_000_000
EXECUTORS_SAMPLES = 6_000_000
EXECUTORS_BATCHES = 6
#: as by default in `penstock telemetry run`
BATCH_ROWS = 2_000_000
#: of each GPU at least: windows of the first ones close
STEPS_MIN = 4
FIELDS = 40
INTERVAL_S = 10
GPUS = (1_000, 10_000, 100_000)
#: of each executor in `pipeline-executors`: its JVM and its Python worker work at the same time, so one
#: executor without a limit would use both cores of a machine with two
EXECUTOR_CORES = 0.6
TIMEOUT_S = 1800


def _preload(bootstrap: str, name: str, gpus: int, samples: int) -> None:
    steps = max(STEPS_MIN, samples // (gpus * FIELDS))
    # Samples of the future would be refused.
    begin = datetime.now(UTC) - timedelta(seconds=steps * INTERVAL_S)
    options = ["--hosts", str(gpus // 8), "--duration", str(steps * INTERVAL_S), "--speed", "0"]
    options += ["--start", begin.isoformat(timespec="milliseconds")]
    command = [sys.executable, "-m", "penstock", "telemetry", "simulate", *options]
    subprocess.run(
        [*command, "--bootstrap", bootstrap, "--topic", name],
        stdout=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        check=True,
    )


def _session(bootstrap: str, name: str, master: str, batch_rows: int, cores: float = 0) -> Values:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as tables:
        arguments = [bootstrap, name, tables, master, str(batch_rows), str(cores)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.pipeline_scale_session", *arguments],
            stdout=subprocess.PIPE,
            timeout=TIMEOUT_S,
            check=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
        for deleted in admin.delete_topics([ALERTS, DEAD_LETTERS]).values():
            deleted.result(30)
    measured: Values = json.loads(done.stdout.splitlines()[-1])
    return measured


def _fleet(gpus: int, contender: Contender, scale: float) -> Values:
    require("java")
    samples = int(SAMPLES * scale)
    with topic(contender.server.bootstrap) as name:
        _preload(contender.server.bootstrap, name, gpus, samples)
        master = "local-cluster[1,2,4096]"
        measured = _session(contender.server.bootstrap, name, master, int(BATCH_ROWS * scale))
    total_s = measured["executor CPU"] + measured["driver CPU"]
    return {
        "CPU per sample": total_s / measured["samples"] * 1e6,
        "driver's share": measured["driver CPU"] / total_s * 100,
        "memory of the executor": measured["executor memory"] / 1e6,
    }


def _executors(contender: Contender, scale: float) -> Values:
    require("java")
    samples = int(EXECUTORS_SAMPLES * scale)
    bootstrap, batch_rows = contender.server.bootstrap, samples // EXECUTORS_BATCHES
    with topic(bootstrap) as name:
        _preload(bootstrap, name, GPUS[1], samples)
        one, two = (
            _session(bootstrap, name, f"local-cluster[{number},1,4096]", batch_rows, EXECUTOR_CORES)
            for number in (1, 2)
        )
    return {
        "executor CPU, two against one": two["executor CPU"] / one["executor CPU"],
        "serial share": max(0.0, 2 * two["seconds"] / one["seconds"] - 1) * 100,
    }


ROWS = (
    *(
        Row(
            f"pipeline-{gpus}-gpus",
            f"{max(SAMPLES, STEPS_MIN * FIELDS * gpus):,} preloaded samples of {gpus:,} GPUs, "
            "on one executor of two cores",
            (
                Metric("CPU per sample", "µs", False),
                Metric("driver's share", "% of CPU", False, limit=5 if gpus == GPUS[-1] else None),
                Metric("memory of the executor", "MB", False),
            ),
            partial(_fleet, gpus),
            heavy=True,
            alone="it measures the pipeline, of which a broker is a small part",
        )
        for gpus in GPUS
    ),
    Row(
        "pipeline-executors",
        f"{EXECUTORS_SAMPLES:,} preloaded samples of {GPUS[1]:,} GPUs on one and on two executors "
        f"of {EXECUTOR_CORES} cores",
        (
            Metric("executor CPU, two against one", "×", False, limit=1.15),
            Metric("serial share", "%", False, limit=10),
        ),
        _executors,
        heavy=True,
        alone="it measures the pipeline, of which a broker is a small part",
    ),
)
