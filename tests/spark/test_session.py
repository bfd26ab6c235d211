"""The data source inside a real Spark session; the same queries through Spark's own Kafka connector.

Queries are few and small: each costs seconds in Java and in starting Python workers.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lab import LabError
from lab.spark_kafka import spark_kafka_jars
from tests.spark.topics import Topics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("java") is None, reason="java is not installed"),
]
SCHEMA = "name string, number bigint, tags map<string,string>"


@pytest.fixture(scope="module")
def jars() -> str | None:
    """Of Spark's Kafka connector, where Maven Central is at hand."""
    try:
        return spark_kafka_jars()
    except LabError:
        return None


@pytest.fixture(scope="module")
def spark(jars: str | None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        **({"spark.jars": jars} if jars else {}),
    }
    builder = SparkSession.builder.master("local[2]").appName("penstock-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(params=["penstock", "kafka"])
def connector(request: pytest.FixtureRequest, jars: str | None) -> str:
    if request.param == "kafka" and jars is None:
        pytest.skip("Maven Central is not at hand for Spark's Kafka connector")
    name: str = request.param
    return name


def load(spark: SparkSession, connector: str, topics: Topics, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format(connector).option("kafka.bootstrap.servers", topics.bootstrap)
    return reader.option("subscribe", topic).options(**options).load()


def test_a_batch(spark: SparkSession, connector: str, topics: Topics, topic: str) -> None:
    """Nothing is registered: Spark finds the source by itself."""
    topics.fill(topic, [b"a", None], 0, key=b"k", timestamp=1234, headers=[("h", b"x"), ("n", None)])
    topics.fill(topic, [b"b" * (1 << 20)], 2, timestamp=5678, settings={"compression.type": "zstd"})
    end = f'{{"{topic}":{{"0":2,"1":0,"2":-1}}}}'
    rows = load(spark, connector, topics, topic, includeHeaders="true", endingOffsets=end)
    assert rows.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    shown = rows.withColumn("timestamp", F.expr("unix_millis(timestamp)"))
    headers = [("h", b"x"), ("n", None)]
    assert [_plain(row) for row in shown.orderBy("partition", "offset").collect()] == [
        (b"k", b"a", topic, 0, 0, 1234, 0, headers),
        (b"k", None, topic, 0, 1, 1234, 0, headers),
        (None, b"b" * (1 << 20), topic, 2, 0, 5678, 0, None),
    ]


def _plain(row: Any) -> tuple[Any, ...]:
    *columns, headers = row
    as_bytes = [bytes(column) if isinstance(column, bytearray) else column for column in columns]
    pairs = None if headers is None else [(h.key, h.value and bytes(h.value)) for h in headers]
    return (*as_bytes, pairs)


def test_a_stream_and_its_restart(
    spark: SparkSession, connector: str, topics: Topics, topic: str, tmp_path: Path
) -> None:
    """From one topic to another in limited batches; the second run begins where the first one ended."""
    copy = f"{topic}-copy"
    topics.fill(topic, [b"%d" % n for n in range(60)], 0, key=b"k")
    topics.fill(topic, [b"%d" % n for n in range(60, 90)], 1, key=b"k")
    assert _copy(spark, connector, topics, topic, copy, tmp_path) == [45, 45]
    topics.widen(topic, 4)
    topics.fill(topic, [b"%d" % n for n in range(90, 100)], 3, key=b"k")
    assert _copy(spark, connector, topics, topic, copy, tmp_path) == [10]
    copied = load(spark, connector, topics, copy).select("key", F.col("value").cast("string")).collect()
    assert sorted(int(row.value) for row in copied) == list(range(100))
    assert {bytes(row.key) for row in copied} == {b"k"}


def _copy(
    spark: SparkSession, connector: str, topics: Topics, topic: str, copy: str, folder: Path
) -> list[int]:
    """The rows of each batch."""
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "45"}
    reader = spark.readStream.format(connector).option("kafka.bootstrap.servers", topics.bootstrap)
    rows = reader.option("subscribe", topic).options(**options).load().select("key", "value")
    writer = rows.writeStream.format(connector).option("kafka.bootstrap.servers", topics.bootstrap)
    writer = writer.option("topic", copy).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(200)
    assert query.exception() is None
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def test_typed_values_are_those_of_from_json(spark: SparkSession, topics: Topics, topic: str) -> None:
    good = [b'{"name":"n%d","number":%d,"tags":{"a":"b","c":null}}' % (n, n) for n in range(50)]
    topics.fill(topic, [*good[:25], b"", b"{}{}", b'{"name":', *good[25:], None, b"{}"])
    raw = load(spark, "penstock", topics, topic)
    parsed = raw.select("offset", F.from_json(F.col("value").cast("string"), SCHEMA).alias("v"))
    typed = load(spark, "penstock", topics, topic, valueFormat="json", valueSchema=SCHEMA)
    theirs = {row.offset: row.v for row in parsed.collect()}
    ours = typed.select("offset", "value", "malformed").collect()
    assert len(ours) == len(theirs) == 55
    bad = {row.offset: row.malformed and bytes(row.malformed) for row in ours if row.value is None}
    assert bad == {25: b"", 26: b"{}{}", 27: b'{"name":', 53: None}
    assert all(row.value == theirs[row.offset] for row in ours if row.value is not None)


def test_a_wrong_option_is_told(spark: SparkSession, topics: Topics, topic: str) -> None:
    with pytest.raises(
        PySparkException, match="there is no option startingofsets; the nearest is startingOff"
    ):
        load(spark, "penstock", topics, topic, startingOfsets="earliest").count()
