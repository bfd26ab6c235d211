"""The sink without Spark around it: task attempts, the driver, and what readers see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from penstock.reading.connection import cluster_of
from penstock.spark.exactly_once.coordinators import Coordinators
from penstock.spark.exactly_once.decisions import Prepared
from penstock.spark.exactly_once.driver import Driver
from penstock.spark.exactly_once.journal import Journal
from penstock.spark.exactly_once.settings import SinkSettings
from penstock.spark.exactly_once.writers import write_attempt

__all__ = ["Sink", "committed_values", "copy_topic", "rows"]

_TRIES = 4
#: Spark gives a Python process ten seconds to start, which a busy machine may exceed.
_NOT_STARTED = "Python worker failed to connect back"


def rows(*values: str, key: str | None = None) -> Iterator[Any]:
    """One Arrow batch."""
    keys = pa.array([key] * len(values), pa.string())
    yield pa.record_batch([keys, pa.array(values, pa.string())], names=["key", "value"])


class Sink:
    """One query's sink, as Spark makes it."""

    def __init__(self, bootstrap: str, topic: str, query: str | None = None, **options: str) -> None:
        self.query = query or str(uuid4())
        self.run = "1"
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        named = {name.replace("__", "."): value for name, value in options.items()}
        self.settings = SinkSettings.parse(CaseInsensitiveDict(given | named))
        self.cluster = cluster_of(self.settings.endpoint)
        self.coordinators = Coordinators(self.cluster)
        self.journal = Journal(self.cluster, self.settings.decisions_topic)

    @property
    def driver(self) -> Driver:
        """A driver that has just started."""
        return Driver(self.cluster, self.settings.names, self.settings.decisions_topic)

    def attempt(
        self, batch: int, *values: str, partition: int = 0, key: str | None = None
    ) -> Prepared | None:
        """What a task attempt reports."""
        return write_attempt(
            self.settings, self.query, self.run, batch, partition, rows(*values, key=key)
        ).prepared

    def prepared(self, batch: int, *values: str, partition: int = 0) -> Prepared:
        found = self.attempt(batch, *values, partition=partition)
        assert found is not None
        return found

    def open_ids(self) -> list[str]:
        """The transactional ids of the query whose transactions are open."""
        return self.coordinators.listed(self.settings.names.query_pattern(self.query), ["Ongoing"])


def committed_values(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[str]:
    """The values of all partitions up to the last stable offsets, in order."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "reads-only",
        "isolation.level": isolation,
        "enable.partition.eof": True,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        left, found = set(partitions), []
        while left:
            message = consumer.poll(30)
            assert message is not None, "no message and no end within 30 s"
            if message.error():
                left.discard(message.partition())
            else:
                found.append(message.value().decode())
        return sorted(found)
    finally:
        consumer.close()


def copy_topic(spark: SparkSession, bootstrap: str, source: str, target: str, checkpoint: Path) -> None:
    """A stream from one topic to another, to the end of what there is; at most four rows a batch."""
    for left in reversed(range(_TRIES)):
        # A write needs the session to be that of this thread.
        spark.createDataFrame([], "value string")
        rows = spark.readStream.format("penstock").option("kafka.bootstrap.servers", bootstrap)
        read = rows.option("subscribe", source).option("startingOffsets", "earliest")
        writer = read.option("maxOffsetsPerTrigger", 4).load().select("key", "value").writeStream
        writer = (
            writer.format("penstock").option("kafka.bootstrap.servers", bootstrap).option("topic", target)
        )
        writer = writer.option("delivery", "exactly_once").option("checkpointLocation", str(checkpoint))
        try:
            assert writer.trigger(availableNow=True).start().awaitTermination(300)
            return
        except StreamingQueryException as error:
            if _NOT_STARTED not in str(error) or not left:
                raise
