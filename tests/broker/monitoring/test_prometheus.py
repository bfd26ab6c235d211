"""A real Prometheus: `promtool` checks both pages, the server scrapes and evaluates all queries."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest
from confluent_kafka import Consumer, Producer

from lab.server import free_port
from penstock.observability.dashboards import DASHBOARDS, queries
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
    assert running.broker.monitor is not None
    return running.broker.monitor.port


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


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/query?query="

    def query(self, expression: str) -> list[dict[str, Any]]:
        with urllib.request.urlopen(self._url + urllib.parse.quote(expression), timeout=60) as response:
            found = json.load(response)
        assert found["status"] == "success", found
        result: list[dict[str, Any]] = found["data"]["result"]
        return result

    def has_data(self, expression: str) -> bool:
        return bool(self.query(expression))


@pytest.fixture(scope="module")
def prometheus(running: BrokerThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    binary, home = prometheus_binary("prometheus"), tmp_path_factory.mktemp("prometheus")
    config = {
        "global": {"scrape_interval": "1s"},
        "scrape_configs": [
            {"job_name": "penstock", "static_configs": [{"targets": [f"127.0.0.1:{port_of(running)}"]}]}
        ],
    }
    Path(home / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
    port = free_port()
    command = [
        binary,
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={home / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    process = subprocess.Popen(command, cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        found = Prometheus(port)

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
    finally:
        process.terminate()
        process.wait(60)


def test_a_scrape_has_the_metrics(prometheus: Prometheus) -> None:
    (found,) = prometheus.query('penstock_topic_records_in_total{topic="orders"}')
    assert found["value"][1] == "1"


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda each: each.name)
def test_every_query_of_the_dashboards_finds_data(prometheus: Prometheus, dashboard: Any) -> None:
    for query in queries(dashboard):
        expression = query.expression.replace("$__rate_interval", "30s")
        if query.optional:
            prometheus.query(expression)
        else:
            eventually(partial(prometheus.has_data, expression))
