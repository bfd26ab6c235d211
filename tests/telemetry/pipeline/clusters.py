"""A standalone Spark cluster in processes, and what tests on clusters compare."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock.telemetry.message import TOPIC
from penstock.telemetry.outlet import TopicOutlet
from penstock.telemetry.pipeline.batches import Settings
from penstock.telemetry.pipeline.jobs import Job
from penstock.telemetry.pipeline.tables import TABLES
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.simulate.dirt import Shares
from penstock.telemetry.simulate.run import Scenario, Simulation
from penstock.telemetry.thresholds import load_thresholds
from tests.telemetry.pipeline.finishing import complete
from tests.telemetry.pipeline.outcomes import contents

__all__ = [
    "BATCH_ROWS",
    "PATIENCE_S",
    "RETRIES",
    "compare",
    "killed",
    "make_spark_home",
    "produce",
    "standalone",
]

PATIENCE_S = 800.0
BATCH_ROWS = 2500
#: Spark gives a Python process ten seconds to start, which a busy machine may exceed many times in a row.
RETRIES = 30
DIRT = Shares(late=0.005, out_of_order=0.01, duplicates=0.01, malformed=0.005, sentinels=0.005)


def make_spark_home(folder: Path) -> Path:
    """Spark keeps the folders of executors below its home, which must not be that of the environment."""
    home = folder / "spark"
    home.mkdir()
    for each in Path(pyspark.__file__).parent.iterdir():
        (home / each.name).symlink_to(each)
    return home


@contextmanager
def standalone(
    spark_home: Path, folder: Path, environment: Mapping[str, str], size: int = 3
) -> Iterator[tuple[str, list[subprocess.Popen[bytes]]]]:
    """A master and `size` workers with this environment; the address of the master, and the workers."""
    with ExitStack() as stack:

        def started(name: str, *arguments: str) -> tuple[subprocess.Popen[bytes], Path]:
            log = folder / f"{name}.log"
            command = [str(spark_home / "bin" / "spark-class"), *arguments]
            with log.open("wb") as file:
                process = subprocess.Popen(
                    command, stdout=file, stderr=file, env=environment, start_new_session=True
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
        for number in range(size):
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
    """Two minutes of a small fleet, with dirt, to a topic with three partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(timeout=60)
    outlet = TopicOutlet(bootstrap, TOPIC, "test")
    scenario = Scenario(2, 7, now_ms() - 3_600_000, duration_s=120.0, dirt=DIRT, late_s=60.0)
    simulation = Simulation(scenario, outlet)
    simulation.run(lambda second: True, lambda step_s: None)
    outlet.finish()
    return simulation


def compare(spark: SparkSession, bootstrap: str, tables: Path, undisturbed: Path) -> None:
    """Run the same backfill in the session of the tests: all tables are equal, row for row."""
    settings = Settings(load_thresholds(), shards=2)
    job = Job(bootstrap, TOPIC, str(undisturbed), settings, most_per_batch=BATCH_ROWS, until_end=True)
    complete(spark, job)
    for table in TABLES:
        assert contents(tables, table) == contents(undisturbed, table), table
