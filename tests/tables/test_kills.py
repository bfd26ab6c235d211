"""Drivers, JVMs, executors and workers of `penstock table run` die, and each message is in its tables once.

`make tables` (TABLE_KILLS) runs it: each kill starts a session of Spark.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import broker
from tests.tables.in_process import rows_of
from tests.telemetry.pipeline.outcomes import QUICK_JVM
from tests.telemetry.pipeline.processes import executors_below, jvm_below, kill, workers_below

KILLS = int(os.environ.get("TABLE_KILLS", "0"))
SEED = int(os.environ.get("SEED", "1"))
pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not KILLS, reason="make tables"),
]
PATIENCE_S = 300.0
BATCH_ROWS = 200
#: Of each start of the driver: a moment and a call. A batch calls `show` twice: for rows, then dead letters.
POINTS = (
    ("before", "Store.write", "2"),
    ("0", "DeltaTables.show", "3"),
    ("before", "DeltaTables.show", "4"),
    ("0", "DeltaTables.show", "4"),
    ("0", "DeltaTables.show", "1"),
    ("before", "Store.write", "4"),
)


class Fed:
    """A topic, and what its table must have."""

    def __init__(self, bootstrap: str, topic: str, *, compacted: bool) -> None:
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap})
        admin = AdminClient({"bootstrap.servers": bootstrap})
        config = {"cleanup.policy": "compact"} if compacted else {}
        admin.create_topics([NewTopic(topic, 2, config=config)])[topic].result(timeout=60)
        self.sent = 0
        self.rows: list[int] = []
        self.dead: list[int] = []
        self.latest: dict[str, int] = {}

    def feed(self, messages: int, rng: random.Random) -> None:
        """Messages of which some are misfits, some tombstones."""
        for _ in range(messages):
            number, chance, key = self.sent, rng.random(), f"k{rng.randrange(40)}"
            self.sent += 1
            value: Any = {"n": number}
            # In the first batch it would make the column JSON text.
            if number >= 2 * BATCH_ROWS and chance < 0.05:
                value = {"n": f"misfit {number}"}
                self.dead.append(number)
            elif chance < 0.15:
                value = None
                self.latest.pop(key, None)
            else:
                if chance < 0.2:
                    value[f"c{number // 300}"] = chance
                self.rows.append(number)
                self.latest[key] = number
            self._producer.produce(self._topic, None if value is None else json.dumps(value), key)
            self._producer.poll(0)
        assert self._producer.flush(60) == 0


def penstock(bootstrap: str, *arguments: str, program: tuple[str, ...] = ("penstock",)) -> Any:
    return subprocess.Popen(
        [sys.executable, "-m", *program, *arguments],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **QUICK_JVM, "PENSTOCK_BOOTSTRAP": bootstrap},
    )


def finished(process: Any) -> str:
    output, _ = process.communicate(timeout=PATIENCE_S)
    return str(output)


def run_options(name: str) -> list[str]:
    return ["table", "run", name, "--until-end", "--master=local[2]", f"--batch-rows={BATCH_ROWS}"]


@contextmanager
def created(place: Path, mode: str) -> Iterator[tuple[str, Fed]]:
    with broker() as running:
        fed = Fed(running.bootstrap, "orders", compacted=mode == "upsert")
        arguments = ["table", "create", "orders", "--topic=orders", f"--to={place}/orders", "--buckets=4"]
        done = penstock(running.bootstrap, *arguments)
        assert f"{mode} table" in finished(done)
        yield running.bootstrap, fed


def check(place: Path, mode: str, fed: Fed) -> None:
    rows, dead = rows_of(f"{place}/orders"), rows_of(f"{place}/orders_dead_letters")
    assert sorted(json.loads(row["value"])["n"] for row in dead) == sorted(
        f"misfit {number}" for number in fed.dead
    )
    if mode == "upsert":
        assert {row["_key"]: row["n"] for row in rows} == fed.latest
        return
    assert sorted(row["n"] for row in rows if row["n"] is not None) == fed.rows
    assert len(rows) + len(dead) == fed.sent


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
        process = penstock(bootstrap, *run_options("orders"))
        output = finished(process)
        assert process.returncode == 0, output
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


def run_again(bootstrap: str, *options: str) -> None:
    process = penstock(bootstrap, *run_options("orders"), *options)
    output = finished(process)
    assert process.returncode == 0, output


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
