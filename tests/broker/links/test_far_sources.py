"""Sources behind a long line: a delay, lost packets, cuts, and outages that retention does not wait for.

Clusters are processes. The line is a proxy (`lab/wan.py`): `tc netem` needs a kernel module that few machines
have. `make links` runs these tests (LINK_KILLS).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from lab.penstock import far_penstock, penstock
from lab.server import Server
from lab.wan import FROM, TO, Wan
from penstock.net.link_ends import end_topics
from penstock.wire.apis.describe_log_dirs import MirroredLog
from tests.broker.links.clusters import create, ends_at, lines, link, log_of, records, values
from tests.waiting import eventually

SEED = int(os.environ.get("LINK_KILLS_SEED", "0")) or random.randrange(1 << 30)
PARTITIONS = 3
#: seconds on the lossy line
LOSSY_S = 30.0
PATIENCE_S = 180.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not os.environ.get("LINK_KILLS"), reason="minutes, with processes: make links"),
    pytest.mark.timeout(900),
]


@contextmanager
def clusters(folder: Path, wan: Wan, **config: str) -> Iterator[tuple[Server, str, Server]]:
    """A source, its address behind the line, and a destination. Clients of the tests are near both."""
    (folder / "source").mkdir()
    (folder / "here").mkdir()
    settings = {key.replace("_", "."): value for key, value in config.items()}
    source, far = far_penstock(folder / "source", settings, wan)
    here = penstock(folder / "here", {})
    with ExitStack() as stack:
        for each in (source, here):
            each.start()
            stack.callback(each.stop)
        yield source, far, here


class Load:
    """Writes numbered records until it is stopped."""

    def __init__(self, bootstrap: str, pause_s: float) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer(settings)
        self._stopped = threading.Event()
        self._pause_s = pause_s
        self._sent: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        n = 0
        while not self._stopped.wait(self._pause_s):
            self._producer.produce("orders", b"%d" % n, partition=n % PARTITIONS)
            self._sent[n % PARTITIONS].append(n)
            self._producer.poll(0)
            n += 1

    def stop(self) -> list[list[int]]:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_S) == 0
        return self._sent


def mirror(bootstrap: str) -> MirroredLog:
    found = log_of(bootstrap, "orders")
    assert found is not None, "the partition is mirrored"
    return found


def log_range(bootstrap: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "watcher"})
    try:
        start, end = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30)
        return int(start), int(end)
    finally:
        consumer.close()


def write(bootstrap: str, numbers: range) -> None:
    """In batches of 20 records of 5 KB."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in numbers:
        producer.produce("orders", b"%-5000d" % n, partition=0)
        if n % 20 == 19:
            assert producer.flush(PATIENCE_S) == 0


def test_an_outage_that_outlasts_retention_leaves_a_gap_that_is_counted(tmp_path: Path) -> None:
    """An hour, shortened by a small retention at the source. What was mirrored stays."""
    small = {"log_retention_bytes": str(2 << 20), "log_segment_bytes": str(1 << 20)}
    often = {"log_retention_check_interval_ms": "500"}
    with Wan() as wan, clusters(tmp_path, wan, **small, **often) as (source, far, here):
        old, new = source.bootstrap, here.bootstrap
        create(old, "orders")
        write(old, range(200))
        link(new, far, topics="orders")
        ends_at(new, "orders", 200)
        before = records(new, "orders")
        wan.cut()
        write(old, range(200, 3000))
        eventually(lambda: log_range(old)[0] > 200, PATIENCE_S)
        eventually(lambda: mirror(new).phase == "retrying", PATIENCE_S)
        assert records(new, "orders") == before
        wan.heal()
        ends_at(new, "orders", 3000)
        found, after = mirror(new), records(new, "orders")
        assert after[: len(before)] == before
        behind = after[len(before) :]
        assert found.missed == behind[0][0] - 200 > 0
        assert [int(each[3] or b"") for each in behind] == list(range(behind[0][0], 3000))
        write(old, range(3000, 3020))
        ends_at(new, "orders", 3020)


def test_a_lossy_line_and_cuts_of_one_direction_lose_nothing(tmp_path: Path) -> None:
    """80 ms, 1 % loss, and cuts in either direction, or both, for a part of a second to some seconds."""
    print(f"LINK_KILLS_SEED={SEED}")
    rng = random.Random(SEED)
    with Wan(SEED) as wan, clusters(tmp_path, wan) as (source, far, here):
        old, new = source.bootstrap, here.bootstrap
        create(old, "orders", PARTITIONS)
        wan.delay_s, wan.loss = 0.04, 0.01
        link(new, far, topics="orders")
        load = Load(old, 0.002)
        try:
            ends = time.monotonic() + LOSSY_S
            while time.monotonic() < ends:
                time.sleep(rng.uniform(0.2, 2.0))  # cuts come at random times
                wan.cut(rng.choice([(TO,), (FROM,), (TO, FROM)]))
                time.sleep(rng.uniform(0.1, 3.0))
                wan.heal()
        finally:
            sent = load.stop()
        for partition, numbers in enumerate(sent):
            ends_at(new, "orders", len(numbers), partition)
            assert values(new, "orders", partition) == numbers
            assert records(new, "orders", partition) == records(old, "orders", partition)
        with lines(new) as line:
            ended = line.run(
                lambda port: end_topics(port, "west", None, complete=True, wait_s=PATIENCE_S, fence=True)
            )
        assert [(each.end_offset, each.missed) for each in ended] == [(len(each), 0) for each in sent]
