"""kill -9 of the driver, again and again, over one topic: nothing is lost, and nothing is there twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.telemetry.message import TOPIC
from penstock.telemetry.outlet import TopicOutlet
from penstock.telemetry.pipeline.tables import Tables
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.simulate.run import Scenario, Simulation
from penstock.testing import broker

KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("SEED", "1"))
PATIENCE_S = 120.0


def begin(bootstrap: str, tables: Path) -> subprocess.Popen[bytes]:
    """The pipeline in small batches, in a process group of its own: Spark's JVM dies with it."""
    options = [
        "--bootstrap",
        bootstrap,
        "--tables",
        str(tables),
        "--batch-rows",
        "1000",
        "--master",
        "local[2]",
    ]
    command = [sys.executable, "-m", "penstock", "telemetry", "backfill", *options]
    return subprocess.Popen(
        command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def batches_begun(tables: Path) -> int:
    """The number of the newest batch that was begun; -1 before the first."""
    found = (tables / "_queries" / "telemetry" / "state").glob("begun-*.json")
    return max((int(path.stem.removeprefix("begun-")) for path in found), default=-1)


def kill_somewhere(running: subprocess.Popen[bytes], tables: Path, rng: random.Random) -> None:
    """Let a batch begin that was not begun before, and end the driver somewhere in it or after it."""
    known, deadline = batches_begun(tables), time.monotonic() + PATIENCE_S
    while batches_begun(tables) == known and running.poll() is None:
        assert time.monotonic() < deadline, "no batch has begun"
        time.sleep(0.02)
    time.sleep(rng.uniform(0.0, 1.5))
    assert running.poll() is None, "it has ended before it was killed: give it more to do"
    os.killpg(running.pid, signal.SIGKILL)
    running.communicate()


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_driver_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with broker() as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(timeout=10)
        outlet = TopicOutlet(running.bootstrap, TOPIC, "test")
        duration_s = 30.0 * (KILLS + 1)
        start_ms = now_ms() - 3_600_000
        simulation = Simulation(Scenario(2, SEED, start_ms, duration_s=duration_s, faults=0.0), outlet)
        simulation.run(lambda second: True, lambda step_s: None)
        outlet.finish()
        for _ in range(KILLS):
            kill_somewhere(begin(running.bootstrap, tmp_path), tmp_path, rng)
        last = begin(running.bootstrap, tmp_path)
        _, errors = last.communicate(timeout=PATIENCE_S)
        assert last.returncode == 0, errors.decode()
    tables = Tables(str(tmp_path))
    samples = tables.open("samples").to_pyarrow_table(
        columns=["gpu_id", "field", "at", "partition", "offset"]
    )
    assert samples.num_rows == simulation.summary()["sent"], f"SEED={SEED}"
    assert samples.group_by(["gpu_id", "field", "at"]).aggregate([]).num_rows == samples.num_rows
    assert samples.group_by(["partition", "offset"]).aggregate([]).num_rows == samples.num_rows
    rollups = tables.open("rollups_10s").to_pyarrow_table(
        columns=["gpu_id", "field", "window_start", "count"]
    )
    windows = rollups.group_by(["gpu_id", "field", "window_start"]).aggregate([])
    assert windows.num_rows == rollups.num_rows > 0
    closed = max(rollups["window_start"].to_pylist()).timestamp() + 10
    in_closed = sum(at.timestamp() < closed for at in samples["at"].to_pylist())
    assert sum(rollups["count"].to_pylist()) == in_closed
