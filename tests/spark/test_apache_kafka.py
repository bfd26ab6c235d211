"""No lock-in: the same data source on Apache Kafka itself, where Maven Central is at hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import types as sql
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.reading.connection import close_clusters
from tests.spark.topics import Topics, batch_rows, schema, source, task_rows
from tests.spark.writing import write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def kafka(real_kafka: str) -> Iterator[Topics]:
    yield Topics(real_kafka)
    close_clusters()


def test_reading_and_writing(kafka: Topics) -> None:
    sent = [b"%d " % number * 20 for number in range(500)]
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        kafka.fill("codecs", sent, settings={"compression.type": codec}, headers=[("codec", codec.encode())])
    rows = batch_rows(kafka.bootstrap, subscribe="codecs", includeHeaders="true")
    assert [row["value"] for row in rows] == sent * 5
    assert {row["headers"][0]["value"] for row in rows} == {b"none", b"gzip", b"snappy", b"lz4", b"zstd"}
    columns = sql.StructType([sql.StructField("value", sql.BinaryType())])
    write(kafka.bootstrap, columns, [{"value": value} for value in sent], topic="written")
    written = batch_rows(kafka.bootstrap, subscribePattern="writ.*")
    assert sorted(row["value"] for row in written) == sorted(sent)


def test_a_stream(kafka: Topics) -> None:
    kafka.fill("stream", [b"before"])
    reader = source(kafka.bootstrap, subscribe="stream").streamReader(schema())
    start = reader.initialOffset()
    assert start == {"stream": {"0": 1, "1": 0}}
    kafka.fill("stream", [b"after"], 1)
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = list(task_rows(reader, reader.partitions(start, end)))
    assert [(row["value"], row["partition"], row["offset"]) for row in rows] == [(b"after", 1, 0)]


def test_only_committed_transactions(kafka: Topics) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic("transactions", 1, 1)])["transactions"].result(60)
    producers = [_transactional(kafka, name) for name in ("first", "second")]
    committed: list[bytes] = []
    aborted: list[bytes] = []
    for number in range(12):
        producer, commits = producers[number % 2], number % 3 != 0
        values = [b"%d.%d" % (number, part) for part in range(4)]
        producer.begin_transaction()
        for value in values:
            producer.produce("transactions", value)
        producer.flush(20)
        (producer.commit_transaction if commits else producer.abort_transaction)(20)
        (committed if commits else aborted).extend(values)
    producers[0].begin_transaction()
    producers[0].produce("transactions", b"open")
    producers[0].flush(20)
    isolated = {"kafka__isolation__level": "read_committed"}
    for options in ({}, {"maxRecordsPerPartition": "3"}):
        rows = batch_rows(kafka.bootstrap, subscribe="transactions", **isolated, **options)
        assert [row["value"] for row in rows] == committed
    everything = batch_rows(kafka.bootstrap, subscribe="transactions")
    assert {row["value"] for row in everything} == {*committed, *aborted, b"open"}
    producers[0].abort_transaction(20)


def _transactional(kafka: Topics, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    return producer
