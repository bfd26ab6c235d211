"""Quix Streams, an application framework that lives on groups: its state outlives its crash, and its disk.

One worker is killed in the middle of its work and its state store lost with it. The two that come after it
share the partitions, rebuild the state from the changelog topic and go on from the group's offsets: every
total that is ever said is right, and the last one of every key is there.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from lab.penstock import penstock
from lab.quixstreams import quixstreams_python

pytestmark = pytest.mark.process

APPLICATION = Path(__file__).parent / "quix" / "totals.py"
SETTINGS = {
    "group.initial.rebalance.delay.ms": "50",
    "group.min.session.timeout.ms": "500",
    "penstock.log.level": "warning",
}
PARTITIONS = 4
KEYS = [f"customer {n}" for n in range(10)]
BEFORE, LAST = 50, 200
"""Payments per key: those that are committed before the crash, and all. Number N is over N, so that the total
after it is N * (N + 1) / 2."""
PATIENCE_S = 150.0


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first time it installs Quix Streams
def test_a_stateful_application_survives_its_crash(tmp_path: Path) -> None:
    python = quixstreams_python()
    server = penstock(tmp_path, SETTINGS)
    server.start()
    try:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        make_topics(admin)
        totals = Totals(server.bootstrap)
        pay(server.bootstrap, 1, BEFORE)
        with worker(python, server.bootstrap, tmp_path / "first") as first:
            totals.read_until(lambda: totals.latest == dict.fromkeys(KEYS, BEFORE), first)
            totals.read_until(lambda: committed(admin) == BEFORE * len(KEYS), first)
            pay(server.bootstrap, BEFORE + 1, LAST // 2)
            totals.read_until(lambda: max(totals.latest.values()) > BEFORE, first)
            first.kill()
            first.wait()
        assert first.returncode == -9, "it ended before it was killed"

        pay(server.bootstrap, LAST // 2 + 1, LAST)
        with (
            worker(python, server.bootstrap, tmp_path / "second") as second,
            worker(python, server.bootstrap, tmp_path / "third") as third,
        ):
            totals.read_until(lambda: totals.latest == dict.fromkeys(KEYS, LAST), second, third)
        totals.close()
    finally:
        server.stop()
    assert "handler_failed" not in server.log.read_text()
    restored = (tmp_path / "second.log").read_text() + (tmp_path / "third.log").read_text()
    assert "Recovery successful" in restored, "the state was not rebuilt from the changelog"


class Totals:
    """The application's results, each checked as it comes."""

    def __init__(self, bootstrap: str) -> None:
        self.messages = 0
        self.latest: dict[str, int] = {}
        config = {"bootstrap.servers": bootstrap, "group.id": "auditor", "auto.offset.reset": "earliest"}
        self._consumer = Consumer(config | {"log_level": 0})
        self._consumer.subscribe(["totals"])

    def read_until(self, condition: Callable[[], bool], *workers: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"after {self.messages} totals: {self.latest}"
            assert [w.poll() for w in workers] == [None] * len(workers), "a worker has ended"
            for message in self._consumer.consume(500, timeout=0.1):
                assert message.error() is None, message.error()
                self._check(message.key().decode(), json.loads(message.value()))

    def _check(self, key: str, said: dict[str, int]) -> None:
        number = said["number"]
        assert said["total"] == number * (number + 1) // 2, f"{key}: {said}"
        self.messages += 1
        self.latest[key] = max(number, self.latest.get(key, 0))

    def close(self) -> None:
        self._consumer.close()


@contextmanager
def worker(python: Path, bootstrap: str, state: Path) -> Iterator[subprocess.Popen[bytes]]:
    with state.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen([python, APPLICATION, bootstrap, state], stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def make_topics(admin: AdminClient) -> None:
    topics = [NewTopic("payments", PARTITIONS), NewTopic("totals", PARTITIONS)]
    for made in admin.create_topics(topics).values():
        made.result(60)


def committed(admin: AdminClient) -> int:
    """How many payments the application has committed."""
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("totals")])["totals"].result(60)
    return sum(p.offset for p in found.topic_partitions if p.topic == "payments" and p.offset > 0)


def pay(bootstrap: str, first: int, last: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number in range(first, last + 1):
        for key in KEYS:
            producer.produce("payments", json.dumps({"number": number, "amount": number}), key)
    assert producer.flush(60) == 0
