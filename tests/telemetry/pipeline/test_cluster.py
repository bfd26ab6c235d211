"""The pipeline on executors in processes of their own, one of which is killed in the middle of a batch.

`local-cluster` is in `make test`. `make standalone` (STANDALONE=1) runs the same on a standalone master with
three workers as processes, and kills a worker with its executor.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import penstock
from penstock.telemetry.message import TOPIC
from penstock.telemetry.outlet import TopicOutlet
from penstock.telemetry.pipeline.batches import Settings
from penstock.telemetry.pipeline.jobs import Job
from penstock.telemetry.pipeline.tables import TABLES
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.simulate.dirt import Shares
from penstock.telemetry.simulate.run import Scenario, Simulation
from penstock.telemetry.thresholds import load_thresholds
from penstock.testing import broker
from tests.telemetry.pipeline.finishing import complete
from tests.telemetry.pipeline.outcomes import QUICK_JVM, contents
from tests.telemetry.pipeline.processes import below, command_of

pytestmark = [pytest.mark.process, pytest.mark.slow]

PATIENCE_S = 400.0
BATCH_ROWS = 2500
DIRT = Shares(late=0.005, out_of_order=0.01, duplicates=0.01, malformed=0.005, sentinels=0.005)
EXECUTOR = "CoarseGrainedExecutorBackend"


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """Spark keeps the folders of executors below its home, which must not be that of the environment."""
    home = tmp_path / "spark"
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    return home


def environment(spark_home: Path) -> dict[str, str]:
    # Executors run in folders of their own.
    path = os.pathsep.join([str(Path(penstock.__file__).parents[1]), str(Path.cwd())])
    reported = {"PYTHONPATH": path, "SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **QUICK_JVM, **reported, "SPARK_LOCAL_IP": "127.0.0.1"}


def executors(pid: int) -> list[int]:
    return [each for each in below(pid) if EXECUTOR in command_of(each)]


@contextmanager
def standalone(spark_home: Path, folder: Path) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A master and three workers; the address of the master, and the workers."""
    with ExitStack() as stack:

        def started(name: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
            log = folder / f"{name}.log"
            command = [str(spark_home / "bin" / "spark-class"), *arguments]
            with log.open("wb") as file:
                process = subprocess.Popen(
                    command, stdout=file, stderr=file, env=environment(spark_home), start_new_session=True
                )
            stack.callback(process.wait)
            stack.callback(killed, process)
            return process, log

        package = "org.apache.spark.deploy"
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        _, log = started("master", f"{package}.master.Master", *ports)
        address = waited_for(log, r"Starting Spark master at (spark://\S+)")
        resources = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work"))
        workers = []
        for number in range(3):
            worker, log = started(f"worker-{number}", f"{package}.worker.Worker", *ports, *resources, address)
            waited_for(log, "Successfully registered with master")
            workers.append(worker)
        yield address, workers


def killed(process: subprocess.Popen[bytes]) -> None:
    """Kill a process with its session, which has executors of its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def waited_for(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = re.search(pattern, log.read_text(errors="replace"))
        if found is not None:
            return found[found.re.groups]
        time.sleep(0.1)
    raise AssertionError(f"{log.name} does not say {pattern}: {log.read_text(errors='replace')[-2000:]}")


def produce(bootstrap: str) -> Simulation:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(timeout=60)
    outlet = TopicOutlet(bootstrap, TOPIC, "test")
    scenario = Scenario(2, 7, now_ms() - 3_600_000, duration_s=120.0, dirt=DIRT, late_s=60.0)
    simulation = Simulation(scenario, outlet)
    simulation.run(lambda second: True, lambda step_s: None)
    outlet.finish()
    return simulation


def backfill(bootstrap: str, tables: Path, master: str, env: dict[str, str], kill: Any) -> None:
    """Run it, and call `kill` with its process once the second batch has begun."""
    options = [f"--bootstrap={bootstrap}", f"--tables={tables}", f"--batch-rows={BATCH_ROWS}"]
    command = [sys.executable, "-m", "penstock", "telemetry", "backfill", *options, "--shards=5"]
    with subprocess.Popen(
        [*command, f"--master={master}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
    ) as process:
        begun = tables / "_queries" / "telemetry" / "state" / "begun-1.json"
        deadline = time.monotonic() + PATIENCE_S
        while not begun.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if process.poll() is None:
            kill(process.pid)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said


def compare(spark: SparkSession, bootstrap: str, tables: Path, undisturbed: Path) -> None:
    settings = Settings(load_thresholds(), shards=2)
    job = Job(bootstrap, TOPIC, str(undisturbed), settings, most_per_batch=BATCH_ROWS, until_end=True)
    complete(spark, job)
    for table in TABLES:
        assert contents(tables, table) == contents(undisturbed, table), table


@pytest.mark.timeout(900)
def test_an_executor_that_is_killed_changes_nothing(
    spark: SparkSession, spark_home: Path, tmp_path: Path
) -> None:
    gone: list[int] = []

    def kill_executor(pid: int) -> None:
        gone.extend(executors(pid)[:1])
        os.kill(gone[0], signal.SIGKILL)

    with broker() as running:
        produce(running.bootstrap)
        tables, env = tmp_path / "tables", environment(spark_home)
        backfill(running.bootstrap, tables, "local-cluster[3,1,1024]", env, kill_executor)
        assert gone, "the executor was to be killed in the middle"
        compare(spark, running.bootstrap, tables, tmp_path / "undisturbed")


@pytest.mark.skipif("STANDALONE" not in os.environ, reason="make standalone")
@pytest.mark.timeout(900)
def test_a_worker_that_is_killed_changes_nothing(
    spark: SparkSession, spark_home: Path, tmp_path: Path
) -> None:
    with broker() as running, standalone(spark_home, tmp_path) as (master, workers):
        produce(running.bootstrap)
        tables, env = tmp_path / "tables", environment(spark_home)
        backfill(running.bootstrap, tables, master, env, lambda pid: killed(workers[1]))
        workers[1].wait(10)
        compare(spark, running.bootstrap, tables, tmp_path / "undisturbed")
