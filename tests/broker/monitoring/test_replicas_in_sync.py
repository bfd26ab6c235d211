"""Readiness in the sense of rolling updates: all replicas of the broker are in sync."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.broker.monitoring.health_facts import HealthFacts, Phase
from penstock.metadata.image import ClusterImage
from penstock.model.ids import TopicId
from penstock.testing import cluster
from penstock.wire.metadata_records import PartitionRecord, TopicRecord
from tests.broker.monitoring.scrapes import MONITORED, get
from tests.testing.cluster_clients import create
from tests.waiting import eventually

OWN = 1
TOPIC = TopicId(b"t" * 16)


def behind(*partitions: tuple[list[int], list[int], list[int]]) -> int:
    """How many replicas of broker 1 are not in sync, of partitions of (replicas, ISR, added replicas)."""
    image = ClusterImage()
    image.apply(TopicRecord(name="orders", topic_id=TOPIC), 0)
    for index, (replicas, isr, adding) in enumerate(partitions):
        record = PartitionRecord(
            partition_id=index, topic_id=TOPIC, replicas=replicas, isr=isr, leader=2, adding_replicas=adding
        )
        image.apply(record, 0)
    sources: Any = SimpleNamespace(image=image, node_id=OWN)
    steps = HealthFacts(sources, Phase()).replicas_behind()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return int(done.value)


def test_a_replica_outside_of_the_isr_is_behind() -> None:
    assert behind(([1, 2, 3], [1, 2, 3], []), ([2, 3], [2], [])) == 0
    assert behind(([1, 2, 3], [2, 3], []), ([3, 1], [3], [])) == 2


def test_a_replica_that_is_being_added_is_not_waited_for() -> None:
    """A rolling update would otherwise wait for every move of the balancer."""
    assert behind(([1, 2, 3], [2, 3], [1])) == 0


def test_a_broker_is_ready_once_its_replicas_are_in_sync() -> None:
    with cluster(brokers=3, config=MONITORED) as running:
        create(running, "orders")
        follower = running.isr("orders")[-1]
        running.restart(follower)
        monitor = running._nodes[follower].broker.serving.monitor
        assert monitor is not None
        port = monitor.port
        eventually(lambda: get(port, "/readyz/in-sync")[:2] == (200, "in sync\n"))
        assert follower in running.isr("orders")
