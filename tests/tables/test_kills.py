"""Drivers, JVMs, executors and workers of `penstock table run` die, and each message is in its tables once.

`make tables` (TABLE_KILLS) runs it: each kill starts a session of Spark.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.tables.fed_tables import (
    BATCH_ROWS,
    PATIENCE_S,
    check,
    created,
    finished,
    penstock,
    run_again,
    run_options,
)
from tests.telemetry.pipeline.processes import executors_below, jvm_below, kill, workers_below

KILLS = int(os.environ.get("TABLE_KILLS", "0"))
SEED = int(os.environ.get("SEED", "1"))
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KILLS, reason="make tables"),
]
#: Of each start of the driver: a moment and a call. A batch calls `show` twice: for rows, then dead letters.
POINTS = (
    ("before", "Store.write", "2"),
    ("0", "DeltaTables.show", "3"),
    ("before", "DeltaTables.show", "4"),
    ("0", "DeltaTables.show", "4"),
    ("0", "DeltaTables.show", "1"),
    ("before", "Store.write", "4"),
)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_killed_drivers_leave_each_message_once(tmp_path: Path, mode: str) -> None:
    rng = random.Random(SEED)
    with created(tmp_path, mode) as (bootstrap, fed):
        for number in range(KILLS):
            fed.feed(3 * BATCH_ROWS, rng)
            moment, method, call = POINTS[number % len(POINTS)]
            if number >= len(POINTS):
                moment, method, call = f"{rng.uniform(0.0, 2.0):.3f}", "Store.write", str(rng.randint(1, 4))
            doomed = ("tests.telemetry.pipeline.doomed", "all", moment, method, call)
            process = penstock(bootstrap, *run_options("orders"), program=doomed)
            output = finished(process)
            assert process.returncode == -signal.SIGKILL, output
        run_again(bootstrap)
    check(tmp_path, mode, fed)


def kill_during(process: Any, kills: int, victims: Callable[[int], Iterable[int]]) -> None:
    """Kill one of the `victims` below the command after each of its first batches, and read to its end."""
    done = 0
    assert process.stdout is not None
    with process.stdout as lines:
        for line in lines:
            if line.startswith("batch ") and done < kills:
                done += any(kill(pid) for pid in victims(process.pid))
    process.wait(PATIENCE_S)
    assert done == kills


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_killed_workers_are_replaced(tmp_path: Path, mode: str) -> None:
    with created(tmp_path, mode) as (bootstrap, fed):
        fed.feed((3 + KILLS) * BATCH_ROWS, random.Random(SEED))
        process = penstock(bootstrap, *run_options("orders"))
        kill_during(process, KILLS, workers_below)
        assert process.returncode in (0, 1)
        run_again(bootstrap)
    check(tmp_path, mode, fed)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_killed_jvm_ends_the_command(tmp_path: Path, mode: str) -> None:
    with created(tmp_path, mode) as (bootstrap, fed):
        fed.feed(6 * BATCH_ROWS, random.Random(SEED))
        process = penstock(bootstrap, *run_options("orders"))
        kill_during(process, 1, lambda pid: [jvm_below(pid)])
        assert process.returncode == 1
        run_again(bootstrap)
    check(tmp_path, mode, fed)


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_killed_executors_are_replaced(tmp_path: Path, mode: str) -> None:
    """Each executor is a JVM of its own, as on a cluster."""
    master = "--master=local-cluster[2,1,1024]"
    with created(tmp_path, mode) as (bootstrap, fed):
        fed.feed((3 + KILLS) * BATCH_ROWS, random.Random(SEED))
        process = penstock(bootstrap, *run_options("orders"), master)
        kill_during(process, KILLS, executors_below)
        assert process.returncode in (0, 1)
        run_again(bootstrap, master)
    check(tmp_path, mode, fed)
