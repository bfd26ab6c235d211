"""Self-healing on a cluster of real brokers: a broker goes, comes back, goes for good, and is back empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.cli.alteration import alter_common
from penstock.cli.cluster.moves import ongoing_moves
from penstock.cli.cluster.overview import cluster_overview
from penstock.cli.cluster.overview_output import print_overview
from penstock.cli.direct import DirectLine
from penstock.testing import Cluster, cluster
from tests.cli.running import run_here
from tests.testing.cluster_clients import CLIENT

#: of heartbeats and delays: time only passes where the test lets it
DELAY_S = 12
CONFIG = {
    "penstock.self.healing.delay.ms": str(DELAY_S * 1000),
    "penstock.balance.new.brokers": "true",
    # Nothing arrives before it is let through: a fetch brings one batch, and the next waits for its rate.
    "penstock.balance.bytes.per.second": "1",
    "replica.fetch.max.bytes": "1024",
    "replica.fetch.response.max.bytes": "1024",
}


def replicas(running: Cluster) -> list[list[int]]:
    return [sorted(running._partition("t", i, lambda image: list(image.replicas)) or []) for i in range(2)]


def adding(running: Cluster) -> list[list[int]]:
    return [running._partition("t", i, lambda image: list(image.adding)) or [] for i in range(2)]


def alter(running: Cluster, name: str, value: str) -> None:
    """Alter a config of all brokers."""
    with DirectLine(running.bootstrap, 60) as line:
        alter_common(line, {name: value}, [])


def eventually(running: Cluster, condition: Callable[[], bool]) -> None:
    """Let time pass until the condition holds, a second after the other."""
    for _ in range(60):
        if condition():
            return
        running.advance(1)
    assert condition()


def test_a_broker_is_replaced_when_it_is_gone_for_long(capsys: pytest.CaptureFixture[str]) -> None:
    with cluster(brokers=4, config=CONFIG) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        topic = NewTopic("t", 2, replica_assignment=[[1, 2, 3], [2, 1, 3]])
        admin.create_topics([topic])["t"].result(60)
        client = Producer({"bootstrap.servers": running.bootstrap, "batch.num.messages": 1, **CLIENT})
        for i in range(20):
            client.produce("t", bytes(1000), partition=i % 2)
        assert client.flush(60) == 0

        running.kill(3)
        running.advance(DELAY_S + 8)
        # It is off by default.
        assert adding(running) == [[], []]
        alter(running, "penstock.self.healing.delay.ms", str((DELAY_S + 20) * 1000))
        alter(running, "penstock.self.healing.enable", "true")
        running.advance(4)
        assert adding(running) == [[], []]
        with DirectLine(running.bootstrap, 60) as line:
            print_overview(cluster_overview(line))
        assert "broker 3 has been gone for" in capsys.readouterr().out

        alter(running, "penstock.self.healing.delay.ms", str(DELAY_S * 1000))
        eventually(running, lambda: adding(running) == [[4], [4]])
        with DirectLine(running.bootstrap, 60) as line:
            assert {each.reason for each in ongoing_moves(line).values()} == {"self-healing: gone: 3"}
            print_overview(cluster_overview(line))
        assert "2 moving, self-healing: gone: 3" in capsys.readouterr().out
        assert run_here("topic", "describe", "t", "--bootstrap", running.bootstrap) == 0
        assert "\npartition 1 moves to 4, from 3: self-healing: gone: 3\n" in capsys.readouterr().out

        running.start(3)
        eventually(running, lambda: adding(running) == [[], []])
        assert replicas(running) == [[1, 2, 3], [1, 2, 3]]

        alter(running, "penstock.balance.bytes.per.second", "1000000")
        running.kill(3)
        eventually(running, lambda: replicas(running) == [[1, 2, 4], [1, 2, 4]])

        running.start(3)
        eventually(running, lambda: sorted(len(set(each) & {3}) for each in replicas(running)) == [0, 1])
