"""Kills of tasks, executors, drivers, brokers and coordinators: each row is there once, in order by key.

`make spark-sink` kills the driver between two transactions of a batch. `make exactly-once` (SINK_KILLS)
kills all kinds in turn, on `local-cluster` with speculation and three brokers. SEED says where.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

import penstock
from chaos.cluster import Cluster
from chaos.links import Links
from penstock.reading.connection import close_clusters, cluster_of
from penstock.twophase.coordinators import Coordinators
from tests.spark.exactly_once.sinks import Sink, committed_values, copy_topic
from tests.spark.topics import Topics
from tests.telemetry.pipeline.clusters import make_spark_home
from tests.telemetry.pipeline.outcomes import QUICK_JVM
from tests.telemetry.pipeline.processes import below, command_of, kill

pytestmark = [pytest.mark.process, pytest.mark.slow]

KILLS = int(os.environ.get("SINK_KILLS", "0"))
SEED = int(os.environ.get("SEED", "1"))
PATIENCE_S = 600.0
PARTITIONS = 4
KEYS = 50
#: rows between two kills: several batches
STRETCH = 1200
KINDS = ("task", "driver", "executor", "broker", "coordinator", "point")
POINTS = ("before", "decided", "half", "ended")
EXECUTOR = "CoarseGrainedExecutorBackend"
WORKER = "pyspark.daemon"


class Query:
    """The process of the driver, started again after each of its ends."""

    def __init__(self, bootstrap: str, folder: Path, master: str, source: str, target: str) -> None:
        self._arguments = [bootstrap, master, str(folder), source, target]
        self._folder = folder
        home = make_spark_home(folder)
        path = os.pathsep.join([str(Path(penstock.__file__).parents[1]), str(Path.cwd())])
        own = {"PYTHONPATH": path, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
        self._env = {**os.environ, **QUICK_JVM, **own, "SPARK_LOCAL_IP": "127.0.0.1"}
        self._process: subprocess.Popen[bytes] | None = None
        self.starts = 0

    def start(self, doom: str = "never:0") -> subprocess.Popen[bytes]:
        self.starts += 1
        with (self._folder / f"driver-{self.starts}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.spark.exactly_once.copying", *self._arguments, doom],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self._env,
                start_new_session=True,
            )
        return self._process

    @property
    def pid(self) -> int:
        """Of a driver that runs: one that has ended, by a kill of something else, is started again."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        assert self._process is not None
        return self._process.pid

    def end(self) -> None:
        if self._process is None:
            return
        processes = [self._process.pid, *below(self._process.pid)]
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            processes = []
        self._process.wait(60)
        for each in processes:
            if any(name in command_of(each) for name in (EXECUTOR, WORKER)):
                kill(each)

    def logs(self) -> str:
        newest = self._folder / f"driver-{self.starts}.log"
        return newest.read_text(errors="replace")[-4000:]


def fill(bootstrap: str, topic: str, count: int) -> None:
    """Rows `KEY/NUMBER`, each key in one partition, in the order of the numbers."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 20})
    for number in range(count):
        key = number % KEYS
        producer.produce(topic, f"{key}/{number}", key=str(key), partition=key % PARTITIONS)
        if number % 5000 == 0:
            producer.flush(60)
    assert producer.flush(120) == 0


class Reader:
    """Reads the committed rows of the target, partition by partition."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed"}
        self._consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        self.rows: dict[int, list[str]] = {partition: [] for partition in range(PARTITIONS)}
        self.keys: dict[str, list[int]] = {}

    @property
    def count(self) -> int:
        return sum(len(rows) for rows in self.rows.values())

    def reach(self, count: int, query: Query) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self.count < count:
            assert time.monotonic() < deadline, f"{self.count} of {count} rows\n{query.logs()}"
            assert query.pid
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    value = message.value().decode()
                    self.rows[message.partition()].append(value)
                    key, _, number = value.partition("/")
                    self.keys.setdefault(key, []).append(int(number))

    def close(self) -> None:
        self._consumer.close()


@pytest.mark.skipif("SPARK_SINK" not in os.environ, reason="make spark-sink")
@pytest.mark.timeout(1200)
def test_a_driver_that_is_killed_between_two_transactions(
    spark: SparkSession, bootstrap: str, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The decision is written and one of three transactions has ended: the next run ends the others."""
    target = f"{topic}-out"
    topics.create(target, 3)
    for partition in range(3):
        topics.fill(topic, [f"{partition}/{number}".encode() for number in range(4)], partition)
    query = Query(bootstrap, tmp_path, "local[2]", topic, target)
    try:
        process = query.start("half:0")
        assert process.wait(PATIENCE_S) == -signal.SIGKILL, query.logs()
    finally:
        query.end()
    half = committed_values(bootstrap, target, isolation="read_uncommitted")
    assert len(committed_values(bootstrap, target)) < len(half), "some transactions are left open"
    copy_topic(spark, bootstrap, topic, target, tmp_path / "checkpoint")
    expected = sorted(f"{partition}/{number}" for partition in range(3) for number in range(4))
    assert committed_values(bootstrap, target) == expected


@pytest.mark.skipif(not KILLS, reason="make exactly-once")
@pytest.mark.timeout(3600 + 120 * KILLS * len(KINDS))
def test_every_row_is_there_once_after_kills_of_each_kind(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    total = STRETCH * (KILLS * len(KINDS) + 1)
    configs = {"transaction.two.phase.commit.enable": True, "transactional.id.expiration.ms": 3_600_000}
    with Cluster(tmp_path / "brokers", 3, Links(), configs) as brokers:
        prepare(brokers.bootstrap, total)
        query = Query(brokers.bootstrap, tmp_path, "local-cluster[2,2,1024]", "source", "target")
        reader = Reader(brokers.bootstrap, "target")
        done = dict.fromkeys(KINDS, 0)
        try:
            query.start()
            for number in range(KILLS * len(KINDS)):
                reader.reach(STRETCH * number + rng.randrange(STRETCH), query)
                kind = KINDS[number % len(KINDS)]
                done[kind] += strike(kind, query, brokers, tmp_path, rng)
            reader.reach(total, query)
            left = wait_until_ended(brokers.bootstrap)
        finally:
            query.end()
            reader.close()
        print(f"SEED={SEED}: {total} rows, kills {done}, {query.starts} starts of the driver")
        for key in range(KEYS):
            assert reader.keys[str(key)] == list(range(key, total, KEYS)), f"key {key}, SEED={SEED}"
        assert not left, left
        close_clusters()


def wait_until_ended(bootstrap: str) -> list[str]:
    """The transactions that the driver leaves open after the last batch, in all its time."""
    coordinators = Sink(bootstrap, "target").coordinators
    deadline = time.monotonic() + 60
    while left := coordinators.listed("penstock-spark[.].*", ["Ongoing"]):
        if time.monotonic() > deadline:
            break
        time.sleep(0.2)
    return left


def prepare(bootstrap: str, total: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + PATIENCE_S
    while len(admin.list_topics(timeout=30).brokers) < 3:
        assert time.monotonic() < deadline, "not all brokers have started"
    topics = [NewTopic(name, PARTITIONS, 3) for name in ("source", "target")]
    for future in admin.create_topics(topics, request_timeout=30).values():
        future.result(60)
    fill(bootstrap, "source", total)


def strike(kind: str, query: Query, brokers: Cluster, folder: Path, rng: random.Random) -> bool:
    """Kill one of a kind; false if there was none at this moment."""
    strikes: dict[str, Callable[[], bool]] = {
        "task": lambda: kill_one(WORKER, query, rng),
        "executor": lambda: kill_one(EXECUTOR, query, rng),
        "driver": lambda: kill_driver(query, "never:0"),
        "point": lambda: kill_driver(query, f"{rng.choice(POINTS)}:{next_batch(folder)}"),
        "broker": lambda: kill_broker(rng.choice(brokers.nodes), brokers),
        "coordinator": lambda: kill_broker(coordinator(brokers, folder), brokers),
    }
    return strikes[kind]()


def kill_one(name: str, query: Query, rng: random.Random) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        pid = query.pid
        found = [each for each in below(pid) if name in command_of(each)]
        if found:
            return kill(rng.choice(found))
        time.sleep(0.05)
    return False


def kill_driver(query: Query, doom: str) -> bool:
    """Kill it and start it again, with a point at which it dies once more."""
    query.end()
    query.start(doom)
    return True


def kill_broker(node: int, brokers: Cluster) -> bool:
    brokers.kill(node)
    brokers.start(node)
    return True


def next_batch(folder: Path) -> int:
    """A batch that the driver has not begun yet."""
    begun = [int(path.name) for path in (folder / "checkpoint" / "offsets").glob("[0-9]*")]
    return max(begun, default=0) + 2


def coordinator(brokers: Cluster, folder: Path) -> int:
    """The broker that coordinates the driver's own transactions."""
    sink = Sink(brokers.bootstrap, "target")
    query = json.loads((folder / "checkpoint" / "metadata").read_text())["id"]
    name = sink.settings.names.driver(query)
    cluster = cluster_of(sink.settings.endpoint)
    cluster.refresh([])
    address = Coordinators(cluster).locate([name])[name]
    nodes = {(node.host, node.port): node.id for node in cluster.view.nodes.values()}
    return nodes[address]
