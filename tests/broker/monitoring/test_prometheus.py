"""A real Prometheus: `promtool` checks both pages, the server scrapes and evaluates all queries."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import partial
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka import Consumer, Producer

from lab.prometheus import Prometheus
from penstock.observability.dashboards import DASHBOARDS, queries
from penstock.observability.grafana import selected
from penstock.testing import BrokerThread, broker
from tests.broker.monitoring.scrapes import MONITORED, get
from tests.observability.prometheus import prometheus_binary
from tests.waiting import eventually

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerThread]:
    """A broker on disk with a producer and a group."""
    prometheus_binary("promtool")
    with broker(config=MONITORED, data=tmp_path_factory.mktemp("data")) as found:
        producer = Producer({"bootstrap.servers": found.bootstrap})
        producer.produce("orders", b"value")
        assert producer.flush(60) == 0
        consumer = Consumer(
            {"bootstrap.servers": found.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        assert consumer.poll(60) is not None
        consumer.commit(asynchronous=False)
        yield found
        consumer.close()


def port_of(running: BrokerThread) -> int:
    assert running.broker.serving.monitor is not None
    return running.broker.serving.monitor.port


@pytest.mark.parametrize("path", ["/metrics", "/metrics/kafka"])
def test_promtool_accepts_the_pages(running: BrokerThread, path: str) -> None:
    promtool = prometheus_binary("promtool")
    text = get(port_of(running), path)[1]
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60
    )
    # Kafka's names are not promtool's taste, and have to stay as they are: its remarks exit with 3.
    assert done.returncode == 0 or (path == "/metrics/kafka" and done.returncode == 3), done.stderr
    assert "error" not in done.stderr.lower()


def has_data(prometheus: Prometheus, expression: str) -> bool:
    return bool(prometheus.query(expression))


@pytest.fixture(scope="module")
def prometheus(running: BrokerThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    binary, home = prometheus_binary("prometheus"), tmp_path_factory.mktemp("prometheus")
    with Prometheus(binary, home, [f"127.0.0.1:{port_of(running)}"]) as found:

        def scraped() -> bool:
            try:
                counted = found.query('count_over_time(up{job="penstock"}[1m]) >= 3')
            except HTTPError as error:
                error.close()
                return False
            except OSError:
                return False
            return bool(counted) and bool(found.query('up{job="penstock"} == 1'))

        eventually(scraped)
        yield found


def test_a_scrape_has_the_metrics(prometheus: Prometheus) -> None:
    (found,) = prometheus.query('penstock_topic_records_in_total{topic="orders"}')
    assert found["value"][1] == "1"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_every_query_of_the_dashboards_finds_data(prometheus: Prometheus, dashboard: Any) -> None:
    for query in queries(dashboard):
        expression = selected(query).replace("$__rate_interval", "30s")
        expression = re.sub(r'"\$(instance|topic|group)"', '".+"', expression)
        if query.optional:
            prometheus.query(expression)
        else:
            eventually(partial(has_data, prometheus, expression))
