"""A streaming query in a real Spark session on three brokers of which one dies, and then another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.testing import Cluster, cluster
from tests.spark.connectors import Connector
from tests.spark.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TOPIC = "mortal"


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def numbered(count: int, start: int = 0) -> list[bytes]:
    """Large enough that a task of the first batch needs several fetches."""
    return [b"%06d" % number + bytes(2000) for number in range(start, start + count)]


class Pause:
    """Has a task wait in the midst of what it reads, until the test lets it go on."""

    def __init__(self, folder: Path) -> None:
        self._reached, self._go_on = str(folder / "reached"), str(folder / "go-on")
        os.mkfifo(self._reached)
        os.mkfifo(self._go_on)

    def at_the_first_rows_of(self, partition: int, rows: DataFrame) -> DataFrame:
        reached, go_on = self._reached, self._go_on

        def wait_once(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                if (batch["partition"][0].as_py(), batch["offset"][0].as_py()) == (partition, 0):
                    # Each returns when the other end is opened.
                    open(reached, "w").close()
                    open(go_on).close()
                yield batch

        return rows.mapInArrow(wait_once, rows.schema)

    def wait(self) -> None:
        open(self._reached).close()

    def release(self) -> None:
        open(self._go_on, "w").close()


def test_a_query_whose_leaders_die(spark: SparkSession, three: Cluster, tmp_path: Path) -> None:
    """One while a task reads from it, another between two batches: every row is there, and none twice."""
    topics = Topics(three.bootstrap)
    topics.create(TOPIC, 2, min_insync_replicas="2")
    for partition in (0, 1):
        topics.fill(TOPIC, numbered(6000), partition)
    pause, batches = Pause(tmp_path), []
    stream = Connector("penstock", spark, three.bootstrap).stream(TOPIC, startingOffsets="earliest")
    columns = ("partition", "offset", F.expr("CAST(substring(value, 1, 6) AS STRING) AS number"))

    def take(rows: DataFrame, _: int) -> None:
        batches.append(sorted(map(tuple, pause.at_the_first_rows_of(0, rows).select(*columns).collect())))

    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        pause.wait()
        first = three.wait_for_leader(TOPIC, 0)
        three.kill(first)
        pause.release()
        query.processAllAvailable()
        assert batches == [[(p, n, f"{n:06d}") for p in (0, 1) for n in range(6000)]]
        three.start(first)
        for partition in (0, 1):
            three.wait_for_isr(TOPIC, partition)
        second = three.wait_for_leader(TOPIC, 1)
        three.kill(second)
        topics.fill(TOPIC, numbered(10, 6000), 1)
        query.processAllAvailable()
    finally:
        query.stop()
    assert second != three.leader(TOPIC, 1)
    assert batches[1:] == [[(1, n, f"{n:06d}") for n in range(6000, 6010)]]
