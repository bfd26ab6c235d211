"""A skewed load evens out by itself, on a cluster of real brokers."""

from __future__ import annotations

from collections import Counter

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.testing import Cluster, cluster
from tests.testing.cluster_clients import CLIENT

PARTITIONS = 6


def produce_everywhere(running: Cluster, client: Producer) -> None:
    for partition in range(PARTITIONS):
        client.produce("t", bytes(4096), partition=partition)
    assert client.flush(60) == 0


def leaders(running: Cluster) -> Counter[int | None]:
    return Counter(running.leader("t", partition) for partition in range(PARTITIONS))


@pytest.mark.parametrize(
    ("mode", "replicas"), [("leaders", [1, 2, 3]), ("replicas", [1])], ids=["leaders", "replicas"]
)
def test_skewed_load_evens_out(mode: str, replicas: list[int]) -> None:
    """Everything is led by broker 1; in the end each leads its share, and nothing moves any more."""
    config = {"penstock.balance": mode, "penstock.balance.interval.seconds": "1", "min.insync.replicas": "1"}
    with cluster(brokers=3, config=config) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        assignment = [replicas] * PARTITIONS
        admin.create_topics([NewTopic("t", PARTITIONS, replica_assignment=assignment)])["t"].result(60)
        running.wait_until(lambda: leaders(running) == {1: PARTITIONS})
        client = Producer({"bootstrap.servers": running.bootstrap, **CLIENT})
        for _ in range(30):
            produce_everywhere(running, client)
            running.advance(1.1)
            if leaders(running) == {1: 2, 2: 2, 3: 2}:
                break
        assert leaders(running) == {1: 2, 2: 2, 3: 2}
        settled = [running.leader("t", partition) for partition in range(PARTITIONS)]
        for _ in range(5):
            produce_everywhere(running, client)
            running.advance(1.1)
        assert [running.leader("t", partition) for partition in range(PARTITIONS)] == settled


def test_nothing_moves_by_default() -> None:
    with cluster(brokers=3, config={"penstock.balance.interval.seconds": "1"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        topic = NewTopic("t", PARTITIONS, replica_assignment=[[1, 2, 3]] * PARTITIONS)
        admin.create_topics([topic])["t"].result(60)
        running.wait_until(lambda: leaders(running) == {1: PARTITIONS})
        client = Producer({"bootstrap.servers": running.bootstrap, **CLIENT})
        for _ in range(6):
            produce_everywhere(running, client)
            running.advance(1.1)
        assert leaders(running) == {1: PARTITIONS}
