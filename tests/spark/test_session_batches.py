"""Batch queries in a real Spark session, through ours and through Spark's own Kafka connector.

What holds for both is asserted without a word about which one it is; where they differ, the test says how.
Queries are few and small: each costs a second in Java and in starting Python workers.
"""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from tests.spark.connectors import REFUSED, Connector, as_plain, numbers, offsets_json
from tests.spark.topics import Topics

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
SCHEMA = "name string, number bigint, tags map<string,string>"


def values(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def test_columns(connector: Connector, topics: Topics, topic: str) -> None:
    """Nothing is registered: Spark finds the source by itself. Values of 1 MB, headers, null, both times."""
    stamped = f"{topic}-stamped"
    topics.create(stamped, 1, message_timestamp_type="LogAppendTime")
    topics.fill(topic, [b"a", None], 0, key=b"k", timestamp=1234, headers=[("h", b"x"), ("n", None)])
    topics.fill(topic, [b"b" * (1 << 20)], 2, timestamp=5678, settings={"compression.type": "zstd"})
    topics.fill(stamped, [b"c"], timestamp=1)
    rows = connector.read(f"{topic},{stamped}", includeHeaders="true")
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
    shown = rows.withColumn("timestamp", F.expr("unix_millis(timestamp)")).orderBy(
        "topic", "partition", "offset"
    )
    headers = [("h", b"x"), ("n", None)]
    *sent, by_broker = map(as_plain, shown.collect())
    assert sent == [
        (b"k", b"a", topic, 0, 0, 1234, 0, headers),
        (b"k", None, topic, 0, 1, 1234, 0, headers),
        (None, b"b" * (1 << 20), topic, 2, 0, 5678, 0, None),
    ]
    assert by_broker[:5] == (None, b"c", stamped, 0, 0)
    assert by_broker[5] > 1_700_000_000_000
    assert by_broker[6:] == (1, None)


def test_where_a_query_starts_and_ends(connector: Connector, topics: Topics, topic: str) -> None:
    for number in range(10):
        topics.fill(topic, values(1, number), timestamp=1000 + number * 10)
        topics.fill(topic, values(1, 100 + number), 1, timestamp=1000 + number * 10)
    topics.fill(topic, values(1, 200), 2, timestamp=1050)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    requested: list[tuple[dict[str, str], list[int]]] = [
        ({}, [*range(10), *range(100, 110), 200]),
        (
            {
                "startingOffsets": offsets_json(topic, 3, -2, 1),
                "endingOffsets": offsets_json(topic, 5, 2, -1),
            },
            [3, 4, 100, 101],
        ),
        ({"startingTimestamp": "1031", "endingTimestamp": "1060"}, [4, 5, 104, 105, 200]),
        (
            {
                "startingOffsetsByTimestamp": offsets_json(topic, 1080, 1000, 1050),
                "endingOffsetsByTimestamp": offsets_json(topic, 9999, 1011, 1050),
            },
            [8, 9, 100, 101],
        ),
        ({"startingTimestamp": "1060", **latest}, [*range(6, 10), *range(106, 110)]),
    ]
    queries = [
        connector.read(topic, **options).select(F.lit(number).alias("query"), "value")
        for number, (options, _) in enumerate(requested)
    ]
    all_at_once = queries[0]
    for query in queries[1:]:
        all_at_once = all_at_once.union(query)
    found: list[list[int]] = [[] for _ in requested]
    for row in all_at_once.collect():
        found[row.query].append(int(row.value))
    assert [sorted(each) for each in found] == [expected for _, expected in requested]
    with pytest.raises(REFUSED):
        connector.read(topic, startingTimestamp="1060").collect()


def test_which_partitions_in_which_tasks(connector: Connector, topics: Topics, topic: str) -> None:
    topics.fill(topic, values(90), 0)
    topics.fill(topic, values(10, 90), 2)
    without_effect = {
        "groupIdPrefix": "mine",
        "kafkaConsumer__pollTimeoutMs": "60000",
        "fetchOffset__numRetries": "1",
        "fetchOffset__retryIntervalMs": "5",
        "kafka__isolation__level": "read_committed",
        "kafka__fetch__max__bytes": "1000000",
    }
    # Theirs heeds it in streams only, and has a task for an empty partition, too.
    tasks = connector.read(topic, maxRecordsPerPartition="30").rdd.getNumPartitions()
    assert tasks == (4 if connector.is_ours else 3)
    by_pattern = connector.read(subscribePattern=f"{topic[2:]}$", minPartitions="10", **without_effect)
    assert by_pattern.rdd.getNumPartitions() == 10
    assert numbers(by_pattern) == list(range(100))
    assert numbers(connector.read(assign=f'{{"{topic}":[1,2]}}')) == list(range(90, 100))
    assert numbers(connector.read(subscribePattern=f"^{topic[2:]}$")) == []


def test_retention_loss(connector: Connector, topics: Topics, topic: str) -> None:
    topics.fill(topic, values(10))
    topics.cut(topic, 0, 6)
    start = {"startingOffsets": offsets_json(topic, 0, 0, 0)}
    with pytest.raises(REFUSED):
        connector.read(topic, **start).collect()
    assert numbers(connector.read(topic, failOnDataLoss="false", **start)) == [6, 7, 8, 9]
    assert numbers(connector.read(topic)) == [6, 7, 8, 9], "only requested offsets are lost"


def test_compacted_topics_have_gaps(connector: Connector, topics: Topics, topic: str) -> None:
    for number in range(20):
        topics.fill(topic, values(1, number), key=b"same" if number % 2 else b"%d" % number)
    left = [*range(0, 20, 2), 19]
    topics.compact(topic, left)
    end = {"endingOffsets": offsets_json(topic, 20, 0, 0)}
    assert numbers(connector.read(topic, **end)) == left
    in_small_tasks = connector.read(topic, maxRecordsPerPartition="3", **end)
    assert sorted(row.offset for row in in_small_tasks.select("offset").collect()) == left


def test_both_connectors_refuse_the_same_reads(connector: Connector, topics: Topics, topic: str) -> None:
    wrong: list[dict[str, str]] = [
        {"startingOffsets": "latest"},
        {"endingOffsets": "earliest"},
        {"startingOffsets": offsets_json(topic, 0)},
        {"assign": json.dumps({topic: [0]})},
        {"kafka.auto.offset.reset": "latest"},
        {"subscribe": "nowhere"},
    ]
    for options in wrong:
        with pytest.raises(REFUSED):
            connector.read(**{"subscribe": topic} | options).collect()
            pytest.fail(f"{options} were taken")


def test_an_option_that_there_is_not(connector: Connector, topics: Topics, topic: str) -> None:
    """Theirs passes over what it does not know; ours says what was meant."""
    topics.fill(topic, values(3))
    misspelt = connector.read(topic, endingOfsets=offsets_json(topic, 1, 0, 0))
    if connector.is_ours:
        with pytest.raises(PySparkException, match="unknown option endingofsets; did you mean endingOff"):
            misspelt.collect()
    else:
        assert numbers(misspelt) == [0, 1, 2]


@pytest.mark.parametrize("connector", ["penstock"], indirect=True)
def test_typed_values_are_those_of_from_json(connector: Connector, topics: Topics, topic: str) -> None:
    """Theirs has none."""
    good = [b'{"name":"n%d","number":%d,"tags":{"a":"b","c":null}}' % (n, n) for n in range(50)]
    topics.fill(topic, [*good[:25], b"", b"{}{}", b'{"name":', *good[25:], None, b"{}"])
    parsed = connector.read(topic).select(
        "offset", F.from_json(F.col("value").cast("string"), SCHEMA).alias("v")
    )
    typed = connector.read(topic, valueFormat="json", valueSchema=SCHEMA)
    theirs = {row.offset: row.v for row in parsed.collect()}
    ours = typed.select("offset", "value", "malformed").collect()
    assert len(ours) == len(theirs) == 55
    bad = {row.offset: row.malformed and bytes(row.malformed) for row in ours if row.value is None}
    assert bad == {25: b"", 26: b"{}{}", 27: b'{"name":', 53: None}
    assert all(row.value == theirs[row.offset] for row in ours if row.value is not None)


def test_filters_are_pushed_to_the_reader(spark: SparkSession, topics: Topics, topic: str) -> None:
    """The same rows as without; partitions and offsets that filters leave out are not read."""
    for partition in range(3):
        for number in range(8):
            topics.fill(topic, [b"%d" % number], partition, timestamp=1_700_000_000_000 + 1000 * number)
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        rows = Connector("penstock", spark, topics.bootstrap).read(topic, pushFilters="true")
        wanted = rows.where("partition = 1 and offset > 2 and timestamp >= timestamp_millis(1700000005000)")
        assert sorted(row["value"] for row in wanted.collect()) == [b"5", b"6", b"7"]
        assert wanted.rdd.getNumPartitions() == 1
        assert rows.where("partition in (0, 2) and value = '3'").count() == 2
    finally:
        spark.conf.unset(setting)
