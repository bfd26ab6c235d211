"""The cost of metrics: a scrape of many partitions and groups, and a broker with and without the port."""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.lifecycle import allow_open_files
from bench.load import produce, topic
from bench.process import cpu_seconds, resident_bytes, thread_seconds
from bench.table import Contender, Metric, Row, Values, fresh
from bench.throughput import PRODUCER
from lab.server import Server

PARTITIONS = 5000
GROUPS = 1000
SCRAPES = 10
#: what `/metrics` may be asked for, on a broker with topics of 20 partitions
DETAILS = ("", "buckets=0", "detail=topic", "detail=broker")
DETAILED_TOPICS = 250
#: longer than a page is shared, and than the pause between two samples of the groups' lag
PAUSE_S = 0.6
SAMPLED_S = 6.0
OFFSET = 20_000
TIMEOUT_S = 60


def _scraping(contender: Contender, scale: float) -> Values:
    partitions, groups = int(PARTITIONS * scale), int(GROUPS * scale)
    allow_open_files(100_000)
    settings = {"penstock.metrics.listener": f"127.0.0.1:+{OFFSET}"}
    with fresh(contender, settings) as server, topic(server.bootstrap, partitions) as name:
        _commit(server.bootstrap, name, groups)
        time.sleep(SAMPLED_S)
        port = _port(server)
        _scrape(port)
        before, memory = thread_seconds(server.pid), resident_bytes(server.pid)
        slices, sizes = [], []
        for _ in range(SCRAPES):
            time.sleep(PAUSE_S)
            text = _scrape(port)
            found = re.search(r"^penstock_scrape_longest_slice_seconds (\S+)$", text, re.MULTILINE)
            assert found is not None
            slices.append(float(found[1]))
            sizes.append(text.count("\n"))
        seconds = (thread_seconds(server.pid) - before) / SCRAPES
        grown = resident_bytes(server.pid) - memory
    return {
        "longest slice": max(slices) * 1000,
        "CPU per scrape": seconds,
        "lines": sizes[-1],
        "memory that scrapes leave": grown / 1e6,
    }


def asked(detail: str) -> str:
    """The name of a parameter of a scrape."""
    return detail or "all"


def _details(contender: Contender, scale: float) -> Values:
    values: Values = {}
    allow_open_files(100_000)
    settings = {"penstock.metrics.listener": f"127.0.0.1:+{OFFSET}"}
    with fresh(contender, settings) as server, ExitStack() as topics:
        for _ in range(int(DETAILED_TOPICS * scale)):
            topics.enter_context(topic(server.bootstrap, 20))
        time.sleep(SAMPLED_S)
        for detail in DETAILS:
            text = _scrape(_port(server), detail)
            values[f"size, {asked(detail)}"] = len(text) / 1e6
            values[f"samples, {asked(detail)}"] = sum(not line.startswith("#") for line in text.splitlines())
    return values


def _commit(bootstrap: str, name: str, groups: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    futures = []
    for group in range(groups):
        offsets = [TopicPartition(name, group, 0)]
        requested = [ConsumerGroupTopicPartitions(f"group-{group}", offsets)]
        futures += admin.alter_consumer_group_offsets(requested, request_timeout=TIMEOUT_S).values()
    for future in futures:
        future.result(TIMEOUT_S)


def _scrape(port: int, detail: str = "") -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"/metrics?{detail}" if detail else "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


#: the configs of a broker with the port, and without it
_PORTS = {"with the port": f"127.0.0.1:+{OFFSET}", "without it": ""}
_ROUNDS = 4
_MESSAGES = 400_000
_MANY = 1000


def _compared(contender: Contender, scale: float) -> Values:
    """Produce in turns to a broker that is scraped every second, and to one without the port."""
    values: Values = {}
    with ExitStack() as stack:
        servers = {}
        for name, address in _PORTS.items():
            servers[name] = stack.enter_context(fresh(contender, {"penstock.metrics.listener": address}))
            values[f"resident, {name}"] = resident_bytes(servers[name].pid) / 1e6
        stack.enter_context(_scraped_each_second(servers["with the port"]))
        costs: dict[str, list[float]] = {name: [] for name in servers}
        for turn in range(_ROUNDS):
            # Each goes first as often as the other.
            for name in list(servers) if turn % 2 else list(servers)[::-1]:
                costs[name].append(_produce(servers[name], int(_MESSAGES * scale)))
        values |= {f"CPU per million, {name}": min(found) for name, found in costs.items()}
        for name, server in servers.items():
            before = resident_bytes(server.pid)
            stack.enter_context(topic(server.bootstrap, _MANY))
            if _PORTS[name]:
                _scrape(_port(server))
            values[f"memory of 1,000 partitions, {name}"] = (resident_bytes(server.pid) - before) / 1e6
    return values


def _produce(server: Server, count: int) -> float:
    """CPU seconds of the broker per million messages of 1 KB."""
    with topic(server.bootstrap) as name:
        before = cpu_seconds(server.pid)
        produce(server.bootstrap, name, count, 1024, PRODUCER | {"batch.num.messages": "1000"}, 1)
        return (cpu_seconds(server.pid) - before) / count * 1e6


@contextmanager
def _scraped_each_second(server: Server) -> Iterator[None]:
    over = threading.Event()

    def scrape() -> None:
        while not over.wait(1.0):
            _scrape(_port(server))

    thread = threading.Thread(target=scrape, name="scraper")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _port(server: Server) -> int:
    return int(server.bootstrap.rpartition(":")[2]) + OFFSET


ROWS = (
    Row(
        "metrics",
        "1-KB messages with metrics and a scrape per second, and without",
        (
            *(Metric(f"CPU per million, {name}", "s", False) for name in _PORTS),
            *(Metric(f"resident, {name}", "MB", False) for name in _PORTS),
            *(Metric(f"memory of 1,000 partitions, {name}", "MB", False) for name in _PORTS),
        ),
        _compared,
        heavy=True,
        alone="Apache Kafka has no such port",
    ),
    Row(
        "scrape",
        "one scrape of 5,000 partitions and 1,000 groups",
        (
            Metric("longest slice", "ms", False, limit=2),
            Metric("CPU per scrape", "s", False, limit=0.15),
            Metric("lines", "", True),
            Metric("memory that scrapes leave", "MB", False),
        ),
        _scraping,
        heavy=True,
        alone="Apache Kafka has no such port",
    ),
    Row(
        "scrape-details",
        f"one scrape of {DETAILED_TOPICS} topics of 20 partitions, by its parameters",
        tuple(
            Metric(f"{what}, {asked(detail)}", unit, False)
            for detail in DETAILS
            for what, unit in (("size", "MB"), ("samples", ""))
        ),
        _details,
        heavy=True,
        alone="Apache Kafka has no such port",
    ),
)
