"""Archives in a real Spark session: a backup as a batch, and a tiered topic as a stream."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock.spark.streaming import behind_latest, start_query
from penstock.testing import broker
from tests.backup.clusters import take
from tests.broker.app.tiered_topics import TIERED, tiered
from tests.spark.connectors import as_plain
from tests.spark.topics import Topics, batch_rows
from tests.waiting import eventually

pytest.importorskip("obstore", reason="no obstore: pip install 'penstock-mq[archive]'")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
PUSHED = "spark.sql.python.filterPushdown.enabled"


def test_a_backup_is_a_batch_without_brokers(spark: SparkSession, tmp_path: Path) -> None:
    with broker() as running:
        topics = Topics(running.bootstrap)
        topics.create("orders", 2, retention_ms="-1")
        for n in range(20):
            topics.fill("orders", [b"%d" % n], n % 2, key=b"k", timestamp=1_700_000_000_000 + 1000 * n)
        take(running.bootstrap, tmp_path)
    spark.conf.set(PUSHED, "true")
    try:
        options = {"archive": str(tmp_path), "asOf": "latest", "subscribe": "orders", "pushFilters": "true"}
        reader = spark.read.format("penstock").options(**options, columns="value,timestamp,partition")
        rows = reader.load()
        assert rows.columns == ["value", "partition", "timestamp"]
        late = rows.where(F.col("timestamp") >= F.timestamp_seconds(F.lit(1_700_000_005)))
        chosen = late.where("partition = 1 and timestamp < timestamp_seconds(1700000015)").select("value")
        assert sorted(as_plain(row)[0] for row in chosen.collect()) == [b"11", b"13", b"5", b"7", b"9"]
        assert reader.load().count() == 20, "Spark keeps the filters of a frame for its next query"
    finally:
        spark.conf.unset(PUSHED)


def test_the_backlog_of_a_stream_comes_from_the_archive(spark: SparkSession, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    with broker(config=tiered(archive)) as running:
        topics = Topics(running.bootstrap)
        configs = {**TIERED, "retention.ms": "-1"}
        topics.create("t", 1, **{key.replace(".", "_"): value for key, value in configs.items()})
        for n in range(30):
            topics.fill("t", [b"%d" % n * 60])
        eventually(lambda: list(archive.rglob("*.manifest")) != [])
        options = {"kafka.bootstrap.servers": running.bootstrap, "archive": "auto", "subscribe": "t"}
        rows = spark.readStream.format("penstock").options(**options, startingOffsets="earliest").load()
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / "copy"))
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = start_query(writer.trigger(availableNow=True))
        assert query.awaitTermination(300)
        (behind,) = behind_latest(query.lastProgress)
        assert behind.maxOffsetsBehindLatest == 0
        copied = [as_plain(row) for row in spark.read.parquet(str(tmp_path / "copy")).collect()]
        expected = batch_rows(running.bootstrap, subscribe="t")
        assert sorted(row[4] for row in copied) == [row["offset"] for row in expected]
        assert {row[4]: row[1] for row in copied} == {row["offset"]: row["value"] for row in expected}
        assert query.lastProgress is not None
        assert sum(each.numInputRows for each in query.recentProgress) == len(expected)
        assert json.loads(query.lastProgress.sources[0].endOffset) == {"t": {"0": 30}}
