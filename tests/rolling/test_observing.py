"""What a roll sees of a real cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.model.addresses import parse_bootstrap
from penstock.net.cluster_client import ClusterClient
from penstock.rolling.observing import NotObserved, RolledCluster
from penstock.rolling.planner import obstacles
from penstock.rolling.state import ClusterState
from penstock.testing import cluster
from tests.testing.cluster_clients import CLIENT, PATIENCE_S

T = TypeVar("T")


def within(bootstrap: str, work: Callable[[RolledCluster], Awaitable[T]], timeout_s: float = PATIENCE_S) -> T:
    """The result of `work` with the cluster as a roll sees it."""

    async def run() -> T:
        client = ClusterClient(parse_bootstrap(bootstrap), "roll")
        try:
            return await work(RolledCluster(client, timeout_s))
        finally:
            client.close()
            await asyncio.sleep(0)

    return asyncio.run(run())


def describe(bootstrap: str) -> ClusterState:
    return within(bootstrap, lambda rolled: rolled.describe())


def test_a_killed_broker_and_its_next_registration_are_observed() -> None:
    with cluster(brokers=3, config={"penstock.balance.new.brokers": "false"}) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap, **CLIENT})
        topic = NewTopic("t", 3, 3, config={"min.insync.replicas": "2"})
        admin.create_topics([topic])["t"].result(timeout=PATIENCE_S)
        running.wait_until(lambda: not obstacles(describe(running.bootstrap)))
        before = describe(running.bootstrap)
        assert set(before.brokers) == {1, 2, 3} == {voter.id for voter in before.voters}
        assert before.controller in before.brokers
        assert [(each.name.topic, each.min_isr) for each in before.partitions] == [("t", 2)] * 3
        assert all(broker.epoch >= 0 for broker in before.brokers.values())
        gone = next(id_ for id_ in before.brokers if id_ != before.controller)

        running.kill(gone)
        running.wait_until(lambda: len(obstacles(describe(running.bootstrap))) >= 2)
        running.wait_until(lambda: any("not in sync" in r for r in obstacles(describe(running.bootstrap))))
        assert f"broker {gone} is not up" in obstacles(describe(running.bootstrap))
        assert not any("not in sync" in r for r in obstacles(describe(running.bootstrap), without=gone))

        running.restart(gone)
        running.wait_until(lambda: not obstacles(describe(running.bootstrap)))
        after = describe(running.bootstrap)
        assert after.brokers[gone].epoch > before.brokers[gone].epoch
        assert {**after.brokers, gone: None} == {**before.brokers, gone: None}

        within(running.bootstrap, lambda rolled: rolled.elect_preferred(gone, after))
        own = [each.name for each in after.partitions if each.replicas[0] == gone]
        assert own
        running.wait_until(
            lambda: all(e.leader == gone for e in describe(running.bootstrap).partitions if e.name in own)
        )


def test_without_a_broker_nothing_is_observed() -> None:
    with pytest.raises(NotObserved, match="no broker answers DescribeQuorum"):
        within("127.0.0.1:1", lambda rolled: rolled.describe(), timeout_s=1.0)
