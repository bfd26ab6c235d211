"""The telemetry pipeline end to end, live: simulated fleet, broker and Spark together on this machine.

A fleet sends 40 metrics of each GPU every ten seconds during the whole measurement. It begins when the
pipeline has caught up with the samples that arrived while Spark started. The sustained rate is the number
of samples that the pipeline commits per second. Freshness is the time from the sample that an alert is
about until the alert is published and the batch is done. Alerts about missing samples are left out, because
they wait for a timeout.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

from bench.load import topic
from bench.table import Contender, Metric, Row, Values
from lab.home import require
from penstock.telemetry.pipeline.names import ALERTS, DEAD_LETTERS

HOSTS = 2100
GPUS = HOSTS * 8
SAMPLES_PER_S = GPUS * 40 // 10
#: Spark starts, takes what has piled up meanwhile, and compiles what it runs
WARM_UP_S = 300
MEASURED_S = 60
TIMEOUT_S = 600


def _pipeline(contender: Contender, scale: float) -> Values:
    require("java")
    bootstrap = contender.server.bootstrap
    with (
        topic(bootstrap) as name,
        _simulated(bootstrap, name, max(1, int(HOSTS * scale))),
        tempfile.TemporaryDirectory(prefix="penstock-bench-") as tables,
    ):
        try:
            measured = _session(bootstrap, name, tables)
        finally:
            admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
            for deleted in admin.delete_topics([ALERTS, DEAD_LETTERS]).values():
                deleted.result(30)
    return measured


@contextmanager
def _simulated(bootstrap: str, name: str, hosts: int) -> Iterator[None]:
    """Faults come thick and fast, so that there are alerts whose way can be timed."""
    fleet = ["--hosts", str(hosts), "--faults", "0.02", "--fault-period", "60"]
    command = [sys.executable, "-m", "penstock", "telemetry", "simulate", *fleet]
    running = subprocess.Popen(
        [*command, "--bootstrap", bootstrap, "--topic", name], stdout=subprocess.DEVNULL
    )
    try:
        yield
        if running.poll() is not None:
            raise RuntimeError(f"the simulation has ended by itself, with {running.returncode}")
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(30)


def _session(bootstrap: str, name: str, tables: str) -> Values:
    arguments = [bootstrap, name, tables, str(WARM_UP_S), str(MEASURED_S)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.pipeline_session", *arguments],
        stdout=subprocess.PIPE,
        timeout=TIMEOUT_S,
        check=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    measured: Values = json.loads(done.stdout.splitlines()[-1])
    return measured


ROWS = (
    Row(
        "pipeline",
        f"{SAMPLES_PER_S:,} samples/s of {GPUS:,} GPUs, from simulator to tables, rollups and alerts, "
        "on one machine",
        (
            Metric("samples/s", "sustained", True, limit=65_000),
            Metric("freshness p50", "s", False),
            Metric("freshness p99", "s", False, limit=30),
            Metric("longest batch", "s", False),
        ),
        _pipeline,
        heavy=True,
        alone="it measures the pipeline, of which a broker is a small part",
    ),
)
