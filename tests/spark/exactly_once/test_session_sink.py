"""The sink in a real Spark session: streams, restarts, atomic writes, refusals. `make spark-sink` runs it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from penstock.testing import broker
from tests.spark.connectors import REFUSED
from tests.spark.exactly_once.sinks import committed_values, copy_topic
from tests.spark.topics import Topics

pytestmark = [
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif("SPARK_SINK" not in os.environ, reason="make spark-sink"),
]


def write(rows: DataFrame, bootstrap: str, topic: str) -> None:
    rows.sparkSession.createDataFrame([], "value string")
    writer = rows.write.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("topic", topic)
    writer.option("delivery", "exactly_once").mode("append").save()


def test_a_batch_without_a_commit_of_spark_is_not_written_again(
    spark: SparkSession, bootstrap: str, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """The driver died after the sink's commit and before Spark's own: the batch runs again."""
    target = f"{topic}-out"
    topics.create(target, 3)
    topics.fill(topic, [b"%d" % number for number in range(7)], key=b"k")
    checkpoint = tmp_path / "checkpoint"
    copy_topic(spark, bootstrap, topic, target, checkpoint)
    expected = [str(number) for number in range(7)]
    assert committed_values(bootstrap, target) == expected
    forgotten = checkpoint / "commits" / "1"
    forgotten.unlink()
    forgotten.with_name(".1.crc").unlink()
    copy_topic(spark, bootstrap, topic, target, checkpoint)
    assert committed_values(bootstrap, target, isolation="read_uncommitted") == expected


def test_a_batch_write_has_all_rows_or_none(spark: SparkSession, bootstrap: str, topic: str) -> None:
    fail = F.udf(lambda number: 1 / (number - 6) and str(number), StringType())
    numbers = spark.range(8, numPartitions=2)
    with pytest.raises(REFUSED):
        write(numbers.select(fail("id").alias("value")), bootstrap, topic)
    assert committed_values(bootstrap, topic) == []
    write(numbers.select(F.col("id").cast("string").alias("value")), bootstrap, topic)
    assert committed_values(bootstrap, topic) == [str(number) for number in range(8)]


def test_a_cluster_without_two_phase_commit_is_refused(spark: SparkSession) -> None:
    with broker(config={"penstock.log.level": "warning"}) as running:
        Topics(running.bootstrap).create("orders", 1)
        with pytest.raises(
            REFUSED, match=r"lacks transaction\.two\.phase\.commit\.enable=true on the brokers"
        ):
            write(spark.createDataFrame([("v",)], "value string"), running.bootstrap, "orders")
        assert committed_values(running.bootstrap, "orders", isolation="read_uncommitted") == []
