"""Values with the schemas of a registry, through a session of Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as sql

from penstock.client import Registry
from penstock.spark import PenstockDataSource
from penstock.spark.errors import WrongOption
from penstock.spark.options import ReadOptions, registry_of
from penstock.spark.registry_types import arrow_of, ddl_of
from penstock.values.types import is_json, json_field
from tests.console.registry_server import registry_server
from tests.spark.topics import Topics

pytestmark = pytest.mark.process

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "either", "type": ["int", "string"]},
    ],
}
GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", "valueFormat": "registry"}


def test_types_go_to_spark_and_back() -> None:
    kind = pa.struct(
        [
            ("a", pa.int64()),
            ("l", pa.list_(pa.struct([json_field("x-y"), ("d", pa.decimal128(9, 2))]))),
            ("m", pa.map_(pa.string(), pa.int32())),
            ("t", pa.timestamp("us", "UTC")),
        ]
    )
    assert ddl_of(kind) == (
        "`a`: BIGINT, `l`: ARRAY<STRUCT<`x-y`: STRING COMMENT 'JSON text', `d`: DECIMAL(9, 2)>>, "
        "`m`: MAP<STRING, INT>, `t`: TIMESTAMP"
    )
    marked = sql.StructType([sql.StructField("x", sql.StringType(), metadata={"comment": "JSON text"})])
    back = arrow_of(sql.StructType([sql.StructField("l", sql.ArrayType(marked))]))
    assert back == pa.struct([("l", pa.list_(pa.struct([("x", pa.string())])))])
    assert is_json(back[0].type.value_type[0])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "needs schemaRegistry"),
        ({"schemaRegistry": "nowhere"}, "is not a URL"),
        ({"schemaRegistry": "http://127.0.0.1:1", "subscribe": "a,b"}, "valueSubject must name"),
        ({"schemaRegistry": "http://127.0.0.1:1", "schemaRegistryConfig": "/none"}, "cannot be read"),
        ({"valueFormat": "binary", "schemaRegistry": "http://127.0.0.1:1"}, "is for valueFormat=registry"),
        ({"schemaRegistry": "http://127.0.0.1:1", "valueSchema": "a int"}, "belong together"),
    ],
)
def test_options_that_do_not_belong_together_are_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        ReadOptions.parse({**GIVEN, **options}, streaming=False)


def test_the_subject_is_that_of_the_topic() -> None:
    given = {**GIVEN, "schemaRegistry": "http://127.0.0.1:1"}
    assert registry_of(given).subject == "orders-value"
    assert registry_of({**given, "valueSubject": "shop.Order"}).subject == "shop.Order"


def test_values_are_structures_of_the_latest_schema(spark: SparkSession, topics: Topics, topic: str) -> None:
    spark.dataSource.register(PenstockDataSource)
    with registry_server() as served:
        orders = Registry(served.url).avro(f"{topic}-value", ORDER)
        values = [orders.encode({"id": n, "tags": ["a"], "either": n}) for n in range(3)]
        topics.fill(topic, [*values, b"plain", None])
        rows = (
            spark.read.format("penstock")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("subscribe", topic)
            .option("valueFormat", "registry")
            .option("schemaRegistry", served.url)
            .load()
            .selectExpr("offset", "value.id", "value.tags", "value.either", "malformed")
            .orderBy("offset")
            .collect()
        )
    assert [tuple(row) for row in rows] == [
        *((n, n, ["a"], str(n), None) for n in range(3)),
        (3, None, None, None, bytearray(b"plain")),
        (4, None, None, None, None),
    ]
