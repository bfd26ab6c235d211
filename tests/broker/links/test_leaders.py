"""Links between clusters of several brokers, whose leaders change."""

from __future__ import annotations

import itertools

import pytest
from confluent_kafka import Producer

from penstock.testing import cluster
from penstock.testing.clusters import Cluster
from tests.broker.links.clusters import create, ends_at, lines, link, records
from tests.broker.links.commands import end_topics

pytestmark = pytest.mark.slow

PARTITIONS = 3


class Sender:
    """Writes numbered records to all partitions in turn; no record may be lost or come twice."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"})
        self._numbers = itertools.count()
        self.sent: list[list[bytes]] = [[] for _ in range(PARTITIONS)]

    def send(self, count: int) -> None:
        for n in itertools.islice(self._numbers, count):
            self._producer.produce("orders", b"%d" % n, partition=n % PARTITIONS)
            self.sent[n % PARTITIONS].append(b"%d" % n)
        assert self._producer.flush(60) == 0

    def arrives_at(self, destination: str) -> None:
        for partition, sent in enumerate(self.sent):
            ends_at(destination, "orders", len(sent), partition)
            assert [each[3] for each in records(destination, "orders", partition)] == sent


def lose_a_leader(running: Cluster, sender: Sender, destination: str) -> None:
    """Kill the leader of a partition, go on without it, and with it again."""
    gone = running.wait_for_leader("orders")
    running.kill(gone)
    running.advance(15)
    running.wait_for_leader("orders", other_than=gone)
    sender.send(30)
    sender.arrives_at(destination)
    running.start(gone)
    for partition in range(PARTITIONS):
        running.wait_for_isr("orders", partition)
    sender.send(30)
    sender.arrives_at(destination)


def test_leaders_change_in_both_clusters() -> None:
    """Brokers of either side are killed; the mirror has each record once, in order, on all replicas."""
    with cluster(brokers=3) as source, cluster(brokers=3) as destination:
        old, new = source.bootstrap, destination.bootstrap
        create(old, "orders", PARTITIONS, 3)
        sender = Sender(old)
        sender.send(30)
        link(new, old, topics="orders")
        sender.arrives_at(new)
        for side in (destination, source, destination):
            lose_a_leader(side, sender, new)
        with lines(new) as line:
            ended = end_topics(line, "west", None, complete=True, wait_s=60)
        assert [each.end_offset for each in ended] == [len(sent) for sent in sender.sent]
