"""The cost of a scrape of the metrics page, of a broker with many partitions and groups."""

from __future__ import annotations

import http.client
import re
import time

from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.lifecycle import allow_open_files
from bench.load import topic
from bench.process import resident_bytes, thread_seconds
from bench.table import Contender, Metric, Row, Values, fresh

PARTITIONS = 5000
GROUPS = 1000
SCRAPES = 10
#: longer than a page is shared, and than the pause between two samples of the groups' lag
PAUSE_S = 0.6
SAMPLED_S = 6.0
OFFSET = 1000
TIMEOUT_S = 60


def _scraping(contender: Contender, scale: float) -> Values:
    partitions, groups = int(PARTITIONS * scale), int(GROUPS * scale)
    allow_open_files(100_000)
    settings = {"penstock.metrics.listener": f"127.0.0.1:+{OFFSET}"}
    with fresh(contender, settings) as server, topic(server.bootstrap, partitions) as name:
        _commit(server.bootstrap, name, groups)
        time.sleep(SAMPLED_S)
        port = int(server.bootstrap.rpartition(":")[2]) + OFFSET
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


def _commit(bootstrap: str, name: str, groups: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    futures = []
    for group in range(groups):
        offsets = [TopicPartition(name, group, 0)]
        asked = [ConsumerGroupTopicPartitions(f"group-{group}", offsets)]
        futures += admin.alter_consumer_group_offsets(asked, request_timeout=TIMEOUT_S).values()
    for future in futures:
        future.result(TIMEOUT_S)


def _scrape(port: int) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read().decode()
    finally:
        connection.close()


ROWS = (
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
)
