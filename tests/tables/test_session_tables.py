"""Tables in a session of Spark: tasks on its workers, the checkpoint, and the schemas of a registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock.client import Registry
from penstock.jobs.maintenance import Maintenance
from penstock.jobs.supervision import QueryFailed, Retries
from penstock.registry.settings import registry_settings
from penstock.tables.batches import Batch
from penstock.tables.definition import TableDefinition
from penstock.tables.job import TableJob, TableMaintenance, start
from penstock.tables.opening import make
from penstock.testing import broker
from tests.console.registry_server import registry_server
from tests.tables.in_process import definition, rows_of

pytestmark = pytest.mark.process

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "city", "type": "string"}],
}
WITH_PRICE: dict[str, Any] = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "price", "type": "double", "default": 0.0}],
}


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with broker() as running:
        yield running.bootstrap


def create_topic(bootstrap: str, name: str, **configs: str) -> Producer:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 2, config=configs)])[name].result(timeout=60)
    return Producer({"bootstrap.servers": bootstrap})


def run_to_the_end(spark: SparkSession, job: TableJob, report: list[Batch]) -> None:
    """Again what is transient: Spark gives a Python worker ten seconds to start."""
    retries = Retries(4)
    while True:
        try:
            start(spark, job, report.append).wait()
            return
        except QueryFailed as error:
            if retries.next_wait_s(error.__cause__ or error, None) is None:
                raise


def place_of(bootstrap: str, table: TableDefinition, **options: Any) -> TableJob:
    return TableJob(table, bootstrap, until_end=True, **options)


def test_an_append_table_has_each_message_of_avro_once(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    producer = create_topic(bootstrap, "avro")
    with registry_server() as served:
        table = definition(tmp_path, topic="avro", schema="registry", registry=served.url)
        first = Registry(served.url).avro("avro-value", ORDER)
        for number in range(40):
            producer.produce("avro", first.encode({"id": number, "city": "Oslo"}), str(number))
        producer.produce("avro", b"no prefix", "bad")
        assert producer.flush(30) == 0
        make(table)
        job = place_of(bootstrap, table, most_per_batch=25, registry=registry_settings({}, served.url))
        batches: list[Batch] = []
        run_to_the_end(spark, job, batches)
        second = Registry(served.url).avro("avro-value", WITH_PRICE)
        producer.produce("avro", second.encode({"id": 40, "city": "Rome", "price": 1.5}), "40")
        assert producer.flush(30) == 0
        run_to_the_end(spark, job, batches)
    rows = rows_of(table.to)
    assert sorted(row["id"] for row in rows) == list(range(41))
    assert {row["price"] for row in rows} == {None, 1.5}
    (dead,) = rows_of(f"{table.root}/{table.dead_letters}")
    assert dead["reason"] == "the value has no prefix of a schema registry"
    assert sum(batch.read for batch in batches) == 42
    assert len(batches) >= 3
    files = len(DeltaTable(table.to).file_uris())
    Maintenance(
        spark, TableMaintenance(table, None), [table.folder, table.dead_letters], every=1, retention_hours=24
    ).run()
    assert len(DeltaTable(table.to).file_uris()) < files
    assert rows_of(table.to) == rows


def test_an_upsert_table_has_the_latest_message_of_each_key(
    spark: SparkSession, bootstrap: str, tmp_path: Path
) -> None:
    producer = create_topic(bootstrap, "people", **{"cleanup.policy": "compact"})
    table = definition(tmp_path, topic="people", mode="upsert")
    make(table)
    job = place_of(bootstrap, table, most_per_batch=40)
    expected: dict[str, int] = {}
    for number in range(90):
        key = f"k{number % 13}"
        deletes = number % 7 == 3
        producer.produce("people", None if deletes else json.dumps({"n": number}), key)
        expected.pop(key, None)
        if not deletes:
            expected[key] = number
    assert producer.flush(30) == 0
    run_to_the_end(spark, job, [])
    assert {row["_key"]: row["n"] for row in rows_of(table.to)} == expected
    Maintenance(
        spark, TableMaintenance(table, None), [table.folder, table.dead_letters], every=1, retention_hours=24
    ).run()
    assert {row["_key"]: row["n"] for row in rows_of(table.to)} == expected
