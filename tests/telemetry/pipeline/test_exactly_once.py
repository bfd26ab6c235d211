"""kill -9 of the driver, again and again, over one topic: nothing is lost, and nothing is there twice.

`make exactly-once` runs this with more kills. SEED says where they fall.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock.telemetry.message import TOPIC, decode
from penstock.telemetry.outlet import TopicOutlet
from penstock.telemetry.pipeline.batches import Settings
from penstock.telemetry.pipeline.jobs import Job
from penstock.telemetry.pipeline.names import ALERTS, DEAD_LETTERS
from penstock.telemetry.pipeline.tables import TABLES
from penstock.telemetry.pipeline.validate import now_ms
from penstock.telemetry.simulate.dirt import Shares
from penstock.telemetry.simulate.run import Scenario, Simulation
from penstock.telemetry.thresholds import load_thresholds
from penstock.testing import broker
from tests.telemetry.pipeline.finishing import complete
from tests.telemetry.pipeline.outcomes import QUICK_JVM, contents
from tests.telemetry.pipeline.reading import messages

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("KILLS", "3"))
SEED = int(os.environ.get("SEED", "1"))
PATIENCE_S = 240.0
BATCH_ROWS = 1000
#: simulated seconds for each kill: two batches, so that there is always more to do
STRETCH_S = 30.0
DIRT = Shares(late=0.002, out_of_order=0.01, duplicates=0.01, malformed=0.005, sentinels=0.005)


def kill_at_a_point(bootstrap: str, tables: Path, *point: str) -> None:
    """Let the driver end itself there, in a process group of its own: Spark's JVM dies with it."""
    options = [f"--bootstrap={bootstrap}", f"--tables={tables}", f"--batch-rows={BATCH_ROWS}"]
    doomed = [sys.executable, "-m", "tests.telemetry.pipeline.doomed", "all", *point]
    done = subprocess.run(
        [*doomed, "telemetry", "backfill", *options, "--master=local[2]"],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        env={**os.environ, **QUICK_JVM},
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()


def kill_somewhere(number: int, bootstrap: str, tables: Path, rng: random.Random) -> None:
    """One kill of each kind, in turn; the first one when alerts are published, and the batch is not done."""
    if number == 0:
        kill_at_a_point(bootstrap, tables, "0", "Topics.send", "1")
    elif number % 3 == 1:
        # Files are written, and not all of them are in their tables.
        kill_at_a_point(bootstrap, tables, "before", "Tables.commit", str(rng.randint(1, 6)))
    elif number % 3 == 2:
        # Somewhere in or after a batch that was not begun before: what was is written down as done first.
        kill_at_a_point(bootstrap, tables, f"{rng.uniform(0.0, 1.0):.3f}", "Store.write", "2")
    else:
        # Before or after a batch is begun, or done.
        moment = rng.choice(("before", "0"))
        kill_at_a_point(bootstrap, tables, moment, "Store.write", str(rng.randint(1, 3)))


def finish(spark: SparkSession, bootstrap: str, tables: Path) -> None:
    """Run what is left, in the session of these tests."""
    settings = Settings(load_thresholds())
    job = Job(bootstrap, TOPIC, str(tables), settings, most_per_batch=BATCH_ROWS, until_end=True)
    complete(spark, job)


def produce(bootstrap: str) -> Simulation:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 3)])[TOPIC].result(timeout=60)
    outlet = TopicOutlet(bootstrap, TOPIC, "test")
    start_ms = now_ms() - 3_600_000
    scenario = Scenario(
        2, SEED, start_ms, duration_s=STRETCH_S * (KILLS + 1), dirt=DIRT, late_s=STRETCH_S * 2
    )
    simulation = Simulation(scenario, outlet)
    simulation.run(lambda second: True, lambda step_s: None)
    outlet.finish()
    return simulation


def check_samples(bootstrap: str, tables: Path) -> None:
    """Each message is a sample in the table, or a dead letter, or says what a sample in the table says."""
    stored = {(row["partition"], row["offset"]): row for row in contents(tables, "samples")}
    dead = {(row["partition"], row["offset"]): row for row in contents(tables, "dead_letters")}
    said = {place: (row["gpu_id"], row["field"], row["at"]) for place, row in stored.items()}
    taken = set(said.values())
    assert len(taken) == len(stored) == len(contents(tables, "samples"))
    assert len(dead) == len(contents(tables, "dead_letters"))
    sent = {(m.partition(), m.offset()): m.value() for m in messages(bootstrap, TOPIC)}
    for place, value in sent.items():
        if place in dead:
            assert dead[place]["reason"] == "late" or dead[place]["raw"] == value
            continue
        sample = decode(value)
        at = datetime.fromtimestamp(sample.timestamp_ms / 1000, UTC)
        saying = (sample.gpu_id, sample.field.id, at)
        if place in stored:
            assert (said[place], stored[place]["value"]) == (saying, sample.value)
        else:
            assert saying in taken, "neither stored nor a duplicate"
    assert stored.keys() | dead.keys() <= sent.keys()


def check_topics(bootstrap: str, tables: Path) -> None:
    """Topics have it all, some of it twice: which is known by rule, subject and batch, or by its source."""
    published = [json.loads(message.value()) for message in messages(bootstrap, ALERTS)]
    once = {(a["rule"], a["subject"], a["batch_id"], a["state"]): a for a in published}
    assert all(once[a["rule"], a["subject"], a["batch_id"], a["state"]] == a for a in published)
    assert len(published) > len(once), "the first kill was meant to leave some twice"
    alerts = contents(tables, "alerts")
    assert sorted(once) == sorted((a["rule"], a["subject"], a["batch_id"], a["state"]) for a in alerts)
    letters = {message.key(): message.value() for message in messages(bootstrap, DEAD_LETTERS)}
    refused = [row for row in contents(tables, "dead_letters") if row["reason"] != "late"]
    assert letters == {
        f"{row['topic']}/{row['partition']}/{row['offset']}".encode(): row["raw"] for row in refused
    }


@pytest.mark.slow
@pytest.mark.timeout(600 + 300 * KILLS)
def test_a_driver_that_is_killed_loses_and_doubles_nothing(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    disturbed, undisturbed = tmp_path / "disturbed", tmp_path / "undisturbed"
    with broker() as running:
        sent = produce(running.bootstrap).summary()
        for number in range(KILLS):
            kill_somewhere(number, running.bootstrap, disturbed, rng)
        finish(spark, running.bootstrap, disturbed)
        check_samples(running.bootstrap, disturbed)
        check_topics(running.bootstrap, disturbed)
        finish(spark, running.bootstrap, undisturbed)
    verdicts = ("valid", "dead_lettered", "duplicates", "late")
    counted = contents(disturbed, "batches")
    assert sum(row[verdict] for row in counted for verdict in verdicts) == sent["sent"], f"SEED={SEED}"
    for table in TABLES:
        assert contents(disturbed, table) == contents(undisturbed, table), f"{table}, SEED={SEED}"
