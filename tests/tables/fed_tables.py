"""Tables that are fed and kept by commands in processes of their own, and what they must have."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import broker
from tests.tables.in_process import rows_of
from tests.telemetry.pipeline.outcomes import QUICK_JVM

__all__ = [
    "BATCH_ROWS",
    "PATIENCE_S",
    "Fed",
    "check",
    "created",
    "finished",
    "penstock",
    "run_again",
    "run_options",
]

PATIENCE_S = 600.0
BATCH_ROWS = 200


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
    """The output of a command, when it has ended; it and its JVM are killed if it does not end."""
    try:
        output, _ = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        raise AssertionError(f"no end within {PATIENCE_S:g} s: {output}") from None
    return str(output)


def run_options(name: str) -> list[str]:
    return ["table", "run", name, "--until-end", "--master=local[2]", f"--batch-rows={BATCH_ROWS}"]


@contextmanager
def created(place: Path | str, mode: str, *options: str) -> Iterator[tuple[str, Fed]]:
    with broker() as running:
        fed = Fed(running.bootstrap, "orders", compacted=mode == "upsert")
        arguments = [
            "table",
            "create",
            "orders",
            "--topic=orders",
            f"--to={place}/orders",
            "--buckets=4",
            *options,
        ]
        done = penstock(running.bootstrap, *arguments)
        assert f"{mode} table" in finished(done)
        yield running.bootstrap, fed


def check(place: Path | str, mode: str, fed: Fed) -> None:
    rows, dead = rows_of(f"{place}/orders"), rows_of(f"{place}/orders_dead_letters")
    assert sorted(json.loads(row["value"])["n"] for row in dead) == sorted(
        f"misfit {number}" for number in fed.dead
    )
    if mode == "upsert":
        assert {row["_key"]: row["n"] for row in rows} == fed.latest
        return
    assert sorted(row["n"] for row in rows if row["n"] is not None) == fed.rows
    assert len(rows) + len(dead) == fed.sent


def run_again(bootstrap: str, *options: str) -> None:
    """Run the table to the end of its topic."""
    process = penstock(bootstrap, *run_options("orders"), *options)
    output = finished(process)
    assert process.returncode == 0, output
