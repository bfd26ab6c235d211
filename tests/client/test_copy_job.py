"""Two workers copy a topic exactly once while they and the brokers are stopped and killed.

Some requests are repeated with the same idempotent key: soon after the first message, in the same
transaction or the next one, or much later, when the partition may have another owner. They are copied once.

`make exactly-once` runs this with 100,000 messages, transactions of 750 and 20 kills: first without keys,
then with keys. SEED says which ones.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.cluster import Cluster
from chaos.links import Links
from tests.client.copier import KEY, READY

pytestmark = pytest.mark.process

MESSAGES = int(os.environ.get("COPY_MESSAGES", "2000"))
BATCH = int(os.environ.get("COPY_BATCH", "100"))
PACE_MS = os.environ.get("COPY_PACE_MS", "1")
KILLS = int(os.environ.get("COPY_KILLS", "3"))
#: whether messages have idempotent keys, and some are repeated
KEYS = os.environ.get("COPY_KEYS", "1") == "1"
SEED = int(os.environ.get("SEED", "1"))
PARTITIONS = 4
BROKERS = 3
#: every so many messages, a message of the same partition is repeated: the last one, or one far behind
REPEATED = 5
#: how long the copy may take from one kill to the next
PATIENCE_S = 120.0
CONFIGS = {
    "group.min.session.timeout.ms": 1000,
    "group.initial.rebalance.delay.ms": 0,
}
#: what is killed and how: (worker or broker, with SIGKILL). The first three show the most.
VICTIMS = [("worker", True), ("broker", True), ("worker", False), ("broker", False)]


class Workers:
    """The two workers, each started again after its end."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        #: the size of each worker's log when the worker was started last
        self._log_sizes: dict[str, int] = {}

    def start(self, name: str) -> None:
        arguments = [self._bootstrap, "source", "target", name, str(BATCH), PACE_MS]
        with (self._folder / f"{name}.log").open("ab") as log:
            self._log_sizes[name] = log.tell()
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.client.copier", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def end(self, name: str, *, kill: bool) -> None:
        process = self._processes[name]
        if not kill:
            self._wait_until_ready(name)
        assert process.poll() is None, self.logs()
        (process.kill if kill else process.terminate)()
        code = process.wait(60)
        assert kill or code == 0, self.logs()

    def _wait_until_ready(self, name: str) -> None:
        """Return when the worker handles SIGTERM. A worker that was killed may not have come that far."""
        deadline = time.monotonic() + PATIENCE_S
        log = self._folder / f"{name}.log"
        while not log.read_bytes()[self._log_sizes[name] :].count(READY.encode()):
            assert time.monotonic() < deadline and self._processes[name].poll() is None, self.logs()
            time.sleep(0.05)

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def logs(self) -> str:
        return "\n".join(path.read_text()[-3000:] for path in sorted(self._folder.glob("worker-*.log")))


@contextmanager
def reader(bootstrap: str, topic: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    try:
        yield consumer
    finally:
        consumer.close()


def read_all(bootstrap: str, topic: str) -> list[list[bytes]]:
    """The committed values of each partition, up to its end."""
    values: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    ended: set[int] = set()
    with reader(bootstrap, topic) as consumer:
        deadline = time.monotonic() + PATIENCE_S
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline, f"{topic} has no end"
            message = consumer.poll(1.0)
            if message is None:
                continue
            error = message.error()
            if error is None:
                values[message.partition()].append(message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
    return values


def prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + PATIENCE_S
    while len(admin.list_topics(timeout=30).brokers) < BROKERS:
        assert time.monotonic() < deadline, "not all brokers have started"
    topics = [NewTopic(name, PARTITIONS, BROKERS) for name in ("source", "target")]
    for future in admin.create_topics(topics, request_timeout=30).values():
        future.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for place, number in enumerate(sent()):
        value = str(number).encode()
        headers = {KEY: value} if KEYS else {}
        producer.produce("source", value, partition=number % PARTITIONS, headers=headers)
        if place % 10_000 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0


def sent() -> Iterator[int]:
    """The numbers in the order in which they are sent, with repetitions if there are keys."""
    for number in range(MESSAGES):
        yield number
        if KEYS and number % REPEATED == 0:
            # One soon after, and one of half the way: from before a kill, most likely.
            yield number
            yield number // 2 // PARTITIONS * PARTITIONS + number % PARTITIONS


class Progress:
    """Counts the committed messages of the target."""

    def __init__(self, consumer: Consumer, workers: Workers) -> None:
        self._consumer = consumer
        self._workers = workers
        self._count = 0

    def reach(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while self._count < count:
            assert time.monotonic() < deadline, f"{self._count} of {MESSAGES}\n{self._workers.logs()}"
            messages = self._consumer.consume(500, 0.1)
            self._count += sum(message.error() is None for message in messages)


def disturb(cluster: Cluster, workers: Workers, number: int, rng: random.Random) -> None:
    """End one process, and start it again."""
    victim, kill = VICTIMS[number % len(VICTIMS)]
    if victim == "worker":
        name = f"worker-{rng.randint(1, 2)}"
        workers.end(name, kill=kill)
        workers.start(name)
    else:
        node = rng.choice(cluster.nodes)
        (cluster.kill if kill else cluster.stop)(node)
        cluster.start(node)


@pytest.mark.timeout(1800)
def test_the_output_equals_the_input(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with Cluster(tmp_path / "brokers", BROKERS, Links(), CONFIGS) as cluster:
        prepare(cluster.bootstrap)
        workers = Workers(cluster.bootstrap, tmp_path)
        try:
            for number in (1, 2):
                workers.start(f"worker-{number}")
            with reader(cluster.bootstrap, "target") as consumer:
                progress = Progress(consumer, workers)
                for number in range(KILLS):
                    progress.reach(MESSAGES * (number + 1) // (KILLS + 1))
                    disturb(cluster, workers, number, rng)
                progress.reach(MESSAGES)
            for number in (1, 2):
                workers.end(f"worker-{number}", kill=False)
            copied = read_all(cluster.bootstrap, "target")
        finally:
            workers.close()
    expected = [[b"%d" % n for n in range(p, MESSAGES, PARTITIONS)] for p in range(PARTITIONS)]
    assert [len(values) for values in copied] == [len(values) for values in expected]
    assert copied == expected
