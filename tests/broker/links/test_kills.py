"""Brokers of both clusters as processes of their own, which get kill -9 while records are written.

`make links` runs it: LINK_KILLS is the number of kills. A test of seconds is in `test_leaders.py`.
"""

from __future__ import annotations

import itertools
import os
import random
import threading
import time
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ClusterMetadata

from chaos.cluster import Cluster
from chaos.links import Links
from penstock.net.link_ends import Ended, end_topics
from tests.broker.links.clusters import create, ends_at, lines, link, records, values
from tests.waiting import eventually

KILLS = int(os.environ.get("LINK_KILLS", "0"))
SEED = int(os.environ.get("LINK_KILLS_SEED", "0")) or random.randrange(1 << 30)
PARTITIONS = 3
NODES = 3
#: seconds between two kills, and until a broker is started again
PAUSE_S, DOWN_S = (0.5, 4.0), (0.3, 4.0)
#: how long clusters may take to be whole again
WHOLE_S = 180.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(not KILLS, reason="minutes, with six brokers: make links"),
    pytest.mark.timeout(1800),
]


class Load:
    """Writes numbered records to the source until it is stopped: each is to be there, and once."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"enable.idempotence": True, "acks": "all", "message.timeout.ms": 600_000, "linger.ms": 5}
        self._producer = Producer({"bootstrap.servers": bootstrap, **settings})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.failed: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        for n in itertools.count():
            if self._stopped.wait(0.002):
                return
            self._producer.produce("orders", b"%d" % n, partition=n % PARTITIONS, on_delivery=self._done)
            self.sent[n % PARTITIONS].append(n)
            self._producer.poll(0)

    def _done(self, error: object, _: object) -> None:
        if error is not None:
            self.failed.append(str(error))

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        assert self._producer.flush(300) == 0
        assert self.failed == []


def kill_in_turn(sides: list[Cluster], rng: random.Random) -> None:
    """Kill any broker of either side that runs, with at most one of a side down at a time."""
    due: dict[tuple[int, int], float] = {}
    for _ in range(KILLS):
        time.sleep(rng.uniform(*PAUSE_S))  # kills come at random times
        for (side, node), at in list(due.items()):
            if time.monotonic() >= at:
                del due[side, node]
                sides[side].start(node)
        free = [side for side in range(len(sides)) if all(other != side for other, _ in due)]
        if not free:
            continue
        side, node = rng.choice(free), rng.randrange(1, NODES + 1)
        sides[side].kill(node)
        due[side, node] = time.monotonic() + rng.uniform(*DOWN_S)
    for side, node in due:
        sides[side].start(node)


def has_all_brokers(bootstrap: str) -> bool:
    return len(metadata(bootstrap).brokers) == NODES


def is_whole(bootstrap: str) -> bool:
    """All replicas of the topic are in sync."""
    topic = metadata(bootstrap).topics.get("orders")
    return topic is not None and all(len(each.isrs) == NODES for each in topic.partitions.values())


def metadata(bootstrap: str) -> ClusterMetadata:
    """What a broker knows; of none while no broker is there."""
    try:
        return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(timeout=10)
    except KafkaException:
        return ClusterMetadata()


def promoted(bootstrap: str) -> list[Ended]:
    with lines(bootstrap) as line:
        return line.run(lambda port: end_topics(port, "west", None, complete=True, wait_s=120, fence=True))


def test_brokers_of_both_sides_are_killed_under_load(tmp_path: Path) -> None:
    """The mirror has each acknowledged record once, at its offset, and promotes with a fence at the end."""
    print(f"LINK_KILLS_SEED={SEED}")
    rng = random.Random(SEED)
    with (
        Cluster(tmp_path / "source", NODES, Links()) as source,
        Cluster(tmp_path / "here", NODES, Links()) as here,
    ):
        old, new = source.bootstrap, here.bootstrap
        for each in (old, new):
            eventually(partial(has_all_brokers, each), WHOLE_S)
        create(old, "orders", PARTITIONS, NODES)
        link(new, old, topics="orders")
        load = Load(old)
        load.start()
        try:
            eventually(partial(is_whole, new), WHOLE_S)
            kill_in_turn([source, here], rng)
        finally:
            load.stop()
        for each in (old, new):
            eventually(partial(is_whole, each), WHOLE_S)
        for partition, sent in enumerate(load.sent):
            ends_at(new, "orders", len(sent), partition)
            assert values(new, "orders", partition) == sent
            assert records(new, "orders", partition) == records(old, "orders", partition)
        ended = promoted(new)
        assert [(each.end_offset, each.missed) for each in ended] == [(len(sent), 0) for sent in load.sent]
