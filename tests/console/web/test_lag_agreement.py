"""The console, the commands and the metrics state the same lag, also of partitions without a commit."""

from __future__ import annotations

import asyncio
import json

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from starlette.testclient import TestClient

from penstock.console.web.app import ConsoleSettings, build_app
from penstock.model.addresses import parse_bootstrap
from penstock.testing import Cluster, cluster
from tests.broker.monitoring.scrapes import MONITORED, scrape
from tests.cli.running import run
from tests.waiting import eventually

pytestmark = pytest.mark.process
PARTITIONS, RECORDS, COMMITTED = 6, 34, {0: 10, 1: 34}
#: 24 of partition 0, none of partition 1, and all of the other four
LAG = RECORDS - 10 + 4 * RECORDS


def _fill(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS, 2)])["orders"].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for partition in range(PARTITIONS):
        for _ in range(RECORDS):
            producer.produce("orders", b"v", partition=partition)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "enable.auto.commit": False})
    offsets = [TopicPartition("orders", p, offset) for p, offset in COMMITTED.items()]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def _metric(nodes: Cluster) -> list[float]:
    """The lag as the coordinator of the group reports it."""
    found = []
    for running in nodes._nodes.values():
        monitor = running.broker.serving.monitor
        assert monitor is not None
        asyncio.run_coroutine_threadsafe(monitor.lags.sample(), running._loop).result(60)
        samples = scrape(monitor.port).samples
        key = ("penstock_group_lag_records", (("group", "billing"), ("topic", "orders")))
        found += [samples[key]] if key in samples else []
    return found


def test_all_views_count_partitions_without_a_commit_from_the_first_record() -> None:
    with cluster(2, config=MONITORED) as nodes:
        _fill(nodes.bootstrap)
        settings = ConsoleSettings(bootstrap=parse_bootstrap(nodes.bootstrap), hosts=["testserver"])
        with TestClient(build_app(settings), headers={"x-penstock-console": "1"}) as console:
            (listed,) = console.get("/api/groups").json()["groups"]
            assert (listed["lag"], listed["lag_exact"], listed["uncommitted"]) == (LAG, True, 4)
            page = console.get("/api/group", params={"name": "billing"}).json()
            assert (page["lag"], page["lag_exact"], page["uncommitted"]) == (LAG, True, 4)
            assert [row["lag"] for row in page["offsets"]] == [24, 0, 34, 34, 34, 34]
            assert console.get("/api/overview").json()["totals"]["lag"] == LAG
            topic = console.get("/api/topics/orders").json()
            assert [group["lag"] for group in topic["groups"]] == [LAG]
        eventually(lambda: _metric(nodes) == [LAG])
        described = run("group", "describe", "billing", "--json", bootstrap=nodes.bootstrap)
        assert sum(p["lag"] for p in json.loads(described.stdout)[0]["partitions"]) == LAG
        top = run("top", "--once", "--interval", "0.1", "--json", bootstrap=nodes.bootstrap)
        assert [group["lag"] for group in json.loads(top.stdout)["groups"]] == [LAG]
