"""Writers on a live broker, as Spark calls them, without Spark around them."""

from __future__ import annotations

import pytest
from pyspark.sql import types as sql

from penstock.spark.errors import DeliveryFailed, WrongOption
from tests.spark.topics import Topics, batch_rows, source
from tests.spark.writing import write

HEADERS = sql.ArrayType(
    sql.StructType([sql.StructField("key", sql.StringType()), sql.StructField("value", sql.BinaryType())])
)
ALL = (
    sql.StructType()
    .add("key", sql.StringType())
    .add("value", sql.BinaryType())
    .add("topic", sql.StringType())
    .add("partition", sql.IntegerType())
    .add("headers", HEADERS)
)


def test_all_columns(topics: Topics, topic: str) -> None:
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    row = {"key": "k", "value": b"v", "topic": topic, "partition": 2, "headers": headers}
    empty = {"key": None, "value": None, "topic": topic, "partition": 2, "headers": None}
    write(topics.bootstrap, ALL, [row, empty])
    read = batch_rows(topics.bootstrap, subscribe=topic, includeHeaders="true")
    assert [(r["key"], r["value"], r["partition"], r["headers"]) for r in read] == [
        (b"k", b"v", 2, headers),
        (None, None, 2, None),
    ]


def test_the_option_goes_before_the_column_and_keys_go_where_java_puts_them(
    topics: Topics, topic: str
) -> None:
    rows = [{"key": f"key {n}", "value": b"%d" % n, "topic": "elsewhere"} for n in range(50)]
    schema = sql.StructType(ALL.fields[:3])
    write(topics.bootstrap, schema, rows, topic=topic)
    write(topics.bootstrap, schema, rows, topic=topic, kafka__compression__type="zstd")
    read = batch_rows(topics.bootstrap, subscribe=topic)
    places: dict[bytes, set[int]] = {}
    for row in read:
        places.setdefault(row["key"], set()).add(row["partition"])
    assert len(read) == 100
    assert all(len(where) == 1 for where in places.values())
    assert {partition for where in places.values() for partition in where} == {0, 1, 2}


def test_a_row_that_is_not_taken_fails_its_task(topics: Topics, topic: str) -> None:
    row = {"value": b"v", "partition": 7}
    schema = sql.StructType([ALL.fields[1], ALL.fields[3]])
    with pytest.raises(DeliveryFailed, match=f"1 rows were not written: {topic}"):
        write(topics.bootstrap, schema, [row], topic=topic)
    with pytest.raises(WrongOption, match="a row has no topic"):
        write(topics.bootstrap, sql.StructType(ALL.fields[1:3]), [{"value": b"v", "topic": None}])


@pytest.mark.parametrize(
    ("schema", "options", "message"),
    [
        ("value", {}, "option topic, or add a column topic"),
        ("key", {"topic": "t"}, "the column `value` is missing"),
        ("value,partition", {"topic": "t"}, "column partition must be integer, not string"),
        ("value,headers", {"topic": "t"}, "column headers must be array<struct<key:string,value:binary>>"),
    ],
)
def test_rows_that_cannot_be_written_are_refused(
    topics: Topics, schema: str, options: dict[str, str], message: str
) -> None:
    columns = sql.StructType([sql.StructField(name, sql.StringType()) for name in schema.split(",")])
    with pytest.raises(WrongOption, match=message):
        source(topics.bootstrap, **options).writer(columns, overwrite=False)


def test_overwriting_is_refused(topics: Topics) -> None:
    with pytest.raises(WrongOption, match="cannot be overwritten"):
        source(topics.bootstrap, topic="t").writer(ALL, overwrite=True)
