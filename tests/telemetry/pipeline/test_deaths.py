"""Deaths below a pipeline: killed Python processes are replaced, a killed JVM ends the command with a reason.

`make test` has the deaths that one Spark session survives. `make deaths` (DEATHS=1) also kills processes
below the command itself, and its JVM.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, cast

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession

from penstock.cli.telemetry import run as telemetry_run
from penstock.telemetry.message import TOPIC
from penstock.telemetry.outlet import TopicOutlet
from penstock.telemetry.pipeline import batches
from penstock.telemetry.pipeline.batches import Settings
from penstock.telemetry.pipeline.jobs import Job
from penstock.telemetry.pipeline.progress import Progress
from penstock.telemetry.pipeline.tables import TABLES
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.simulate.dirt import Shares
from penstock.telemetry.simulate.run import Scenario, Simulation
from penstock.telemetry.thresholds import load_thresholds
from penstock.testing import broker
from tests.telemetry.pipeline.deadly_store import DeadlyStore, arm
from tests.telemetry.pipeline.finishing import complete
from tests.telemetry.pipeline.outcomes import QUICK_JVM, contents
from tests.telemetry.pipeline.processes import (
    below,
    command_of,
    jvm_below,
    kill,
    wait_until_gone,
    workers_below,
)

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]
with_command = pytest.mark.skipif("DEATHS" not in os.environ, reason="make deaths")

PATIENCE_S = 240.0
BATCH_ROWS = 1000
PLANNER = "python_streaming_source_runner"
CLEAN = Shares()
DIRT = Shares(late=0.005, out_of_order=0.01, duplicates=0.01, malformed=0.005, sentinels=0.005)
#: where the JVM of a backfill dies, one start after the other: moment, method of the driver, call
JVM_DEATHS = (
    # A batch is begun, and its tasks have not started.
    ("0", "Store.write", "begun-1.json"),
    # The files of a batch are written, and one of its tables has them.
    ("before", "Tables.commit", "2"),
    # Everything of a batch is published, and it is not done.
    ("before", "Store.write", "manifest-2.json"),
    # Everything is read, and windows are to be closed.
    ("0", "Store.write", "closing-0.json"),
    # Some rollups of the closed windows are in their table.
    ("before", "Tables.commit", "rollups_1m"),
)


@contextmanager
def topic(partitions: int = 2) -> Iterator[str]:
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, partitions)])[TOPIC].result(timeout=60)
        yield running.bootstrap


def produce(bootstrap: str, start_ms: int, hosts: int = 1, dirt: Shares = CLEAN) -> int:
    """A minute of a small fleet; the number of messages."""
    outlet = TopicOutlet(bootstrap, TOPIC, "test")
    simulation = Simulation(Scenario(hosts, 7, start_ms, duration_s=60.0, dirt=dirt), outlet)
    simulation.run(lambda second: True, lambda step_s: None)
    outlet.finish()
    return int(str(simulation.summary()["sent"]))


def backfill_of(bootstrap: str, tables: Path) -> Job:
    settings = Settings(load_thresholds(), shards=2)
    return Job(bootstrap, TOPIC, str(tables), settings, most_per_batch=BATCH_ROWS, until_end=True)


def assert_equal_tables(tables: Path, undisturbed: Path) -> None:
    for table in TABLES:
        assert contents(tables, table) == contents(undisturbed, table), table


def test_killed_python_processes_are_replaced_and_the_tables_are_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A task is killed in the first batch, and the process that plans the stream after it."""
    tables, undisturbed = tmp_path / "tables", tmp_path / "undisturbed"
    jvm = cast(Any, spark)._jvm.java.lang.ProcessHandle.current().pid()
    progress = Progress(CollectorRegistry())

    def report(done: Any) -> None:
        progress(done)
        if done.batch_id == 0:
            assert [kill(each) for each in below(jvm) if PLANNER in command_of(each)]

    with topic() as bootstrap:
        sent = produce(bootstrap, now_ms() - 3_600_000)
        arm(tables)
        with monkeypatch.context() as patched:
            patched.setattr(batches, "Store", DeadlyStore)
            telemetry_run._keep_running(
                spark,
                backfill_of(bootstrap, tables),
                telemetry_run._Ending(False, 5),
                Event(),
                progress,
                report,
                lambda: None,
            )
        complete(spark, backfill_of(bootstrap, undisturbed))
    said = capsys.readouterr().err
    assert said.count("a Python process of Spark has ended unexpectedly") >= 2, said
    assert progress.consumed == sent
    assert_equal_tables(tables, undisturbed)


@contextmanager
def command(
    name: str, bootstrap: str, tables: Path, *options: str, program: Sequence[str] = ("penstock",)
) -> Iterator[tuple[Any, Path]]:
    """`penstock telemetry NAME` as a process, and the file of its output."""
    output = tables.parent / f"{name}.output"
    shared = [f"--bootstrap={bootstrap}", f"--tables={tables}", "--master=local[2]", "--retries=8"]
    arguments = [sys.executable, "-m", *program, "telemetry", name, *shared, *options]
    with output.open("wb") as file:
        process = subprocess.Popen(
            arguments, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, **QUICK_JVM}
        )
    try:
        yield process, output
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Any, process: Any, output: Path) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, output.read_text()
        assert time.monotonic() < deadline, output.read_text()
        time.sleep(0.02)


def wait_until_read(number: int, process: Any, output: Path) -> None:
    """Wait until the command says that it has read so many messages."""

    def is_read() -> bool:
        counts = [int(count) for count in re.findall(r"(\d+) read so far", output.read_text())]
        assert max(counts, default=0) <= number, "nothing is counted twice"
        return number in counts

    wait_for(is_read, process, output)


def assert_jvm_kill_is_one_line(process: Any, output: Path, tables: Path) -> None:
    """Kill the JVM: the command ends by itself, with a reason, and so do all of its processes."""
    processes = list(below(process.pid))
    before = output.read_text()
    assert kill(jvm_below(process.pid))
    assert_lost_jvm_is_one_line(process, output, tables, before)
    wait_until_gone(processes, PATIENCE_S)


def assert_lost_jvm_is_one_line(process: Any, output: Path, tables: Path, before: str = "") -> None:
    """The command ends by itself, with the reason as its last line after `before`."""
    assert process.wait(PATIENCE_S) == 1, output.read_text()
    log = tables / "_queries" / "spark.log"
    said = output.read_text().removeprefix(before)
    last = said.splitlines()[-1]
    assert last == (
        "penstock: the pipeline failed: the JVM of Spark was killed with SIGKILL, by a user or by the kernel "
        f"for lack of memory; a new start continues after the last batch; see {log}"
    ), said
    assert "Traceback" not in said, said


@with_command
def test_run_survives_its_python_processes_and_ends_with_its_jvm(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    with topic() as bootstrap:
        start_ms = now_ms() - 3_600_000
        sent = produce(bootstrap, start_ms)
        with command("run", bootstrap, tables, "--trigger=0.1") as (process, output):
            wait_until_read(sent, process, output)
            seen: list[int] = []
            for number in range(3):
                # First the workers and the planning process, then their parents, then all of them.
                workers = workers_below(process.pid)
                parents = [each for each in below(process.pid) if set(workers) & set(below(each))]
                others = [each for each in parents if each != jvm_below(process.pid)]
                victims = [workers, others, [*workers, *others]][number]
                seen += below(process.pid)
                assert sum(map(kill, victims))
                start_ms += 60_000
                sent += produce(bootstrap, start_ms)
                wait_until_read(sent, process, output)
            assert "next try in" in output.read_text()
            assert_jvm_kill_is_one_line(process, output, tables)
            # A process below a killed one has another parent.
            wait_until_gone(seen, PATIENCE_S)


@with_command
def test_backfill_after_killed_workers_and_a_killed_jvm_is_complete(
    spark: SparkSession, tmp_path: Path
) -> None:
    tables, undisturbed = tmp_path / "tables", tmp_path / "undisturbed"
    state = tables / "_queries" / "telemetry" / "state"
    with topic() as bootstrap:
        produce(bootstrap, now_ms() - 3_600_000, hosts=2)
        with command("backfill", bootstrap, tables, f"--batch-rows={BATCH_ROWS}") as (process, output):
            wait_for((state / "begun-1.json").exists, process, output)
            assert sum(map(kill, workers_below(process.pid)))
            wait_for((state / "begun-2.json").exists, process, output)
            assert "next try in" in output.read_text()
            assert_jvm_kill_is_one_line(process, output, tables)
        complete(spark, backfill_of(bootstrap, tables))
        complete(spark, backfill_of(bootstrap, undisturbed))
    assert_equal_tables(tables, undisturbed)


@with_command
@pytest.mark.timeout(1800)
def test_backfill_whose_jvm_is_killed_again_and_again_is_complete(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The driver outlives its JVM, and may end what it has begun. The same command then goes on."""
    tables, undisturbed = tmp_path / "tables", tmp_path / "undisturbed"
    rows = f"--batch-rows={BATCH_ROWS}"
    with topic() as bootstrap:
        produce(bootstrap, now_ms() - 3_600_000, hosts=2, dirt=DIRT)
        for point in JVM_DEATHS:
            doomed = ("tests.telemetry.pipeline.doomed", "jvm", *point)
            with command("backfill", bootstrap, tables, rows, program=doomed) as (process, output):
                assert_lost_jvm_is_one_line(process, output, tables)
        with command("backfill", bootstrap, tables, rows) as (process, output):
            assert process.wait(PATIENCE_S) == 0, output.read_text()
        complete(spark, backfill_of(bootstrap, undisturbed))
    assert_equal_tables(tables, undisturbed)


@with_command
def test_a_jvm_that_is_killed_while_it_starts_is_one_line(tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    log = tables / "_queries" / "spark.log"
    with command("backfill", "127.0.0.1:1", tables) as (process, output):
        # The JVM prints this when the session is made.
        wait_for(lambda: log.exists() and "NativeCodeLoader" in log.read_text(), process, output)
        assert kill(jvm_below(process.pid))
        assert process.wait(PATIENCE_S) == 1
    last = output.read_text().splitlines()[-1]
    assert last.startswith("penstock: Spark did not start: the JVM of Spark was killed with SIGKILL"), last
