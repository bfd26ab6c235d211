"""Metrics and health of a cluster: replica lag, groups with partitions of other leaders, a dead broker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.broker.monitoring.monitor import Monitor
from penstock.testing import Cluster, cluster
from penstock.wire.apis.describe_log_dirs import DESCRIBE_LOG_DIRS, DescribeLogDirsRequest
from tests.broker.monitoring.scrapes import MONITORED, get, health, scrape
from tests.broker.nodes import cluster as nodes_of
from tests.broker.nodes import eventually as running_eventually
from tests.broker.nodes import run
from tests.broker.raw import RawClient
from tests.waiting import eventually

CONFIG = MONITORED | {
    "offsets.topic.num.partitions": "1",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "200",
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[Cluster]:
    with cluster(brokers=3, config=CONFIG) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("spread", 3, 3)])["spread"].result(60)
        producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all"})
        for partition in range(3):
            producer.produce("spread", b"value", partition=partition)
        assert producer.flush(60) == 0
        consumer = Consumer(
            {"bootstrap.servers": running.bootstrap, "group.id": "far", "enable.auto.commit": False}
        )
        consumer.commit(offsets=[TopicPartition("spread", p, 0) for p in range(3)], asynchronous=False)
        consumer.close()
        yield running


def ports(nodes: Cluster) -> dict[int, int]:
    found = {}
    for node in nodes.ids:
        monitor = nodes._nodes[node].broker.serving.monitor
        assert monitor is not None
        found[node] = monitor.port
    return found


def _follower_lags(bootstrap: str, follower: int) -> int:
    """The records that a follower lacks, as DescribeLogDirs of its leaders says."""
    found = 0
    for address in bootstrap.split(","):
        with suppress(OSError), RawClient(address) as client:
            response = client.call(DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=None))
            partitions = [p for d in response.results for t in d.topics for p in t.partitions]
            found += sum(
                lag.records for p in partitions for lag in p.follower_lags if lag.broker_id == follower
            )
    return found


def test_only_the_coordinator_reports_a_group_and_knows_the_ends_on_other_leaders(nodes: Cluster) -> None:
    for running in nodes._nodes.values():
        monitor = running.broker.serving.monitor
        assert monitor is not None
        asyncio.run_coroutine_threadsafe(monitor.lags.sample(), running._loop).result(60)

    def lags() -> list[float]:
        pages = [scrape(port) for port in ports(nodes).values()]
        labels = (("group", "far"), ("topic", "spread"))
        return [p.samples[k] for p in pages if (k := ("penstock_group_lag_records", labels)) in p.samples]

    eventually(lambda: lags() == [3])


def test_leaders_report_the_lag_of_their_followers(nodes: Cluster) -> None:
    def caught_up() -> bool:
        found = [scrape(port) for port in ports(nodes).values()]
        lags = [
            (labels["topic"], labels["partition"], labels["replica"], page.value(name, **labels))
            for page in found
            for name in ("penstock_replica_lag_records",)
            for labels in page.labels(name)
            if labels["topic"] == "spread"
        ]
        return len(lags) == 6 and all(lag == 0 for *_, lag in lags)

    eventually(caught_up)
    first = next(iter(ports(nodes).values()))
    # The session of a broker is short here: on a busy machine it may be over for a moment.
    eventually(lambda: scrape(first).value("penstock_brokers", state="active") == 3)
    eventually(lambda: scrape(first).value("penstock_loop_lag_seconds_count") > 0)


def test_a_dead_broker_shows_in_health_and_in_the_lag_of_its_replicas(nodes: Cluster) -> None:
    victim = max(nodes.ids)
    alive = [port for node, port in ports(nodes).items() if node != victim]
    nodes.kill(victim)
    try:

        def is_seen() -> bool:
            return all(
                f"broker {victim} is fenced" in document["cluster"]["reasons"]
                and any(reason.startswith("spread: ") for reason in document["topics"]["reasons"])
                and document["status"] == "Degraded"
                for _, document in map(health, alive)
            )

        eventually(is_seen)
        eventually(lambda: all(get(port, "/readyz")[0] == 200 for port in alive))
        producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all"})
        for partition in range(3):
            producer.produce("spread", b"value", partition=partition)
        assert producer.flush(60) == 0

        def lags() -> bool:
            pages = [scrape(port) for port in alive]
            behind = [
                page.value("penstock_replica_lag_seconds", **labels)
                for page in pages
                for labels in page.labels("penstock_replica_lag_seconds")
                if labels["topic"] == "spread" and labels["replica"] == str(victim)
            ]
            under = sum(page.value("penstock_under_replicated_partitions") for page in pages)
            return len(behind) == 3 and min(behind) > 0 and under >= 3

        eventually(lags)
        assert _follower_lags(nodes.bootstrap, victim) > 0
    finally:
        nodes.start(victim)
    eventually(lambda: all(health(port)[1]["cluster"]["status"] == "Healthy" for port in alive))


def test_a_restarted_last_leader_is_not_the_active_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its quorum state names it the leader of an epoch that it no longer leads, until it enters the next."""
    found: list[float] = []
    start = Monitor.start

    async def scrape_at_once(self: Monitor) -> None:
        await start(self)
        for path, name in (
            ("/metrics", "penstock_active_controller"),
            ("/metrics/kafka", "kafka_controller_kafkacontroller_activecontrollercount"),
        ):
            page = await asyncio.to_thread(scrape, self.port, path)
            found.append(page.value(name))

    async def main() -> None:
        async with nodes_of(3, config=MONITORED) as running:
            leader = (await running.settled()).stages.config.node_id
            await running.stop(*(node for node in (1, 2, 3) if node != leader))
            await running.kill(leader)
            monkeypatch.setattr(Monitor, "start", scrape_at_once)
            alone = asyncio.create_task(running.start(leader))
            await running_eventually(lambda: len(found) == 2)
            alone.cancel()
            await asyncio.gather(alone, return_exceptions=True)
            assert found == [0, 0]

    run(main())
