"""The pipeline on executors in processes of their own, one of which is killed in the middle of a batch.

`local-cluster` is in `make test`. `make standalone` (STANDALONE=1) runs the same on a standalone master with
three workers as processes, and kills a worker with its executor.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.testing import broker
from tests.telemetry.pipeline.clusters import (
    BATCH_ROWS,
    PATIENCE_S,
    RETRIES,
    compare,
    killed,
    make_spark_home,
    produce,
    standalone,
)
from tests.telemetry.pipeline.outcomes import QUICK_JVM
from tests.telemetry.pipeline.processes import below, command_of, kill

pytestmark = [pytest.mark.process, pytest.mark.slow]

EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    return make_spark_home(tmp_path)


def environment(spark_home: Path) -> dict[str, str]:
    # Executors run in folders of their own.
    path = os.pathsep.join([str(Path(penstock.__file__).parents[1]), str(Path.cwd())])
    reported = {"PYTHONPATH": path, "SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **QUICK_JVM, **reported, "SPARK_LOCAL_IP": "127.0.0.1"}


def executors(pid: int) -> list[int]:
    return [each for each in below(pid) if EXECUTOR in command_of(each)]


def backfill(bootstrap: str, tables: Path, master: str, env: dict[str, str], disturb: Any) -> None:
    """Run it, and call `disturb` with its process once the second batch has begun."""
    options = [f"--bootstrap={bootstrap}", f"--tables={tables}", f"--batch-rows={BATCH_ROWS}"]
    command = [sys.executable, "-m", "penstock", "telemetry", "backfill", *options, "--shards=5"]
    command.append(f"--retries={RETRIES}")
    with subprocess.Popen(
        [*command, f"--master={master}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        begun = tables / "_queries" / "telemetry" / "state" / "begun-1.json"
        deadline = time.monotonic() + PATIENCE_S
        while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if process.poll() is None:
            disturb(process.pid)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said


@pytest.mark.timeout(1800)
def test_an_executor_that_is_killed_changes_nothing(
    spark: SparkSession, spark_home: Path, tmp_path: Path
) -> None:
    gone: list[int] = []

    def kill_executor(pid: int) -> None:
        gone.extend(executors(pid)[:1])
        assert kill(gone[0])

    with broker() as running:
        produce(running.bootstrap)
        tables, env = tmp_path / "tables", environment(spark_home)
        backfill(running.bootstrap, tables, "local-cluster[3,1,1024]", env, kill_executor)
        assert gone, "the executor was to be killed in the middle"
        compare(spark, running.bootstrap, tables, tmp_path / "undisturbed")


@pytest.mark.skipif("STANDALONE" not in os.environ, reason="make standalone")
@pytest.mark.timeout(1800)
def test_a_worker_that_is_killed_changes_nothing(
    spark: SparkSession, spark_home: Path, tmp_path: Path
) -> None:
    tables, env = tmp_path / "tables", environment(spark_home)
    with broker() as running, standalone(spark_home, tmp_path, env) as (master, workers):
        produce(running.bootstrap)
        backfill(running.bootstrap, tables, master, env, lambda pid: killed(workers[1]))
        workers[1].wait(PATIENCE_S)
        compare(spark, running.bootstrap, tables, tmp_path / "undisturbed")
