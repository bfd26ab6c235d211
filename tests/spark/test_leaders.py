"""The readers on three brokers of which one dies: rows are complete, and none is there twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.reading.connection import close_clusters
from penstock.testing import Cluster, cluster
from tests.spark.topics import Topics, schema, source, task_rows

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster() as running:
        yield running
        close_clusters()


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Large enough that a task needs several fetches."""
    return [b"%06d" % number + bytes(2000) for number in range(start, start + count)]


def filled(three: Cluster, topic: str) -> tuple[Topics, list[bytes]]:
    """Two partitions of 12 MB each, on all brokers."""
    topics = Topics(three.bootstrap)
    admin = AdminClient({"bootstrap.servers": three.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result(timeout=60)
    sent = numbered(6000)
    for partition in (0, 1):
        topics.fill(topic, sent, partition)
    return topics, sent


def read_while_the_leader_dies(three: Cluster, topic: str, rows: Iterator[dict[str, Any]]) -> list[Any]:
    read = [next(rows)]
    killed = three.wait_for_leader(topic, read[0]["partition"])
    three.kill(killed)
    read += rows
    assert three.leader(topic, read[0]["partition"]) != killed
    three.start(killed)
    return read


def by_partition(rows: list[dict[str, Any]]) -> dict[int, list[bytes]]:
    """Values in the order of reading."""
    found: dict[int, list[bytes]] = {}
    for row in rows:
        found.setdefault(row["partition"], []).append(row["value"])
    return found


def test_a_batch_whose_leader_dies(three: Cluster) -> None:
    _, sent = filled(three, "batch")
    reader = source(three.bootstrap, subscribe="batch").reader(schema())
    rows = read_while_the_leader_dies(three, "batch", task_rows(reader, reader.partitions()))
    assert by_partition(rows) == {0: sent, 1: sent}


def test_a_stream_whose_leader_dies(three: Cluster) -> None:
    topics, sent = filled(three, "stream")
    reader = source(three.bootstrap, subscribe="stream", startingOffsets="earliest").streamReader(schema())
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = read_while_the_leader_dies(three, "stream", task_rows(reader, reader.partitions(start, end)))
    assert by_partition(rows) == {0: sent, 1: sent}
    # The next batch continues after this one with any leader; a batch that is run again reads the same.
    more = numbered(10, 6000)
    topics.fill("stream", more, 1)
    later = reader.latestOffset(end, ReadAllAvailable())
    assert by_partition(list(task_rows(reader, reader.partitions(end, later)))) == {1: more}
    assert by_partition(list(task_rows(reader, reader.partitions(start, end)))) == {0: sent, 1: sent}
