"""Writing rows to topics: at least once, through librdkafka's idempotent producer.

A task is done when every row of it is acknowledged; one that fails is run again by Spark as a whole, and then
writes its rows again. `commit` therefore has nothing left to do: it is where transactions would end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import KafkaError, Producer
from pyspark.sql import types as sql
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from penstock.spark.columns import COLUMNS, check_columns
from penstock.spark.errors import DeliveryFailed, WrongOption
from penstock.spark.options import WriteOptions

__all__ = ["BatchWriter", "RowsWriter", "StreamWriter", "new_rows_writer"]

_ANY_PARTITION: Final = -1
_FULL_WAIT_S: Final = 0.05
_FLUSH_S: Final = 1.0
_DEFAULTS: Final = {
    "enable.idempotence": "true",
    "linger.ms": "20",
    # the hash of Java's clients: a key is found where they would have put it
    "partitioner": "murmur2_random",
    "log_level": "2",
}


def new_rows_writer(options: Mapping[str, str], schema: sql.StructType) -> RowsWriter:
    """Checks, on the driver, that rows of `schema` can be written."""
    parsed = WriteOptions.parse(options)
    check_columns(schema, parsed.topic)
    return RowsWriter(parsed.topic, {**_DEFAULTS, **parsed.producer})


@dataclass(frozen=True)
class RowsWriter:
    """Writes the rows of one task; sent to workers, so it holds settings only."""

    topic: str | None
    settings: Mapping[str, str]

    def write(self, batches: Iterator[Any]) -> WriterCommitMessage:
        """Return when all rows are acknowledged; raise the error if one is refused."""
        failures: list[str] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failures.append(f"{message.topic()}: {error}")

        producer = Producer({**self.settings, "on_delivery": delivered})
        for batch in batches:
            for message in self._messages(batch):
                _produce(producer, message)
            producer.poll(0)
            _check(failures)
        while producer.flush(_FLUSH_S):
            _check(failures)
        _check(failures)
        return WriterCommitMessage()

    def _messages(self, batch: Any) -> Iterator[dict[str, Any]]:
        columns = {name: batch.column(name).to_pylist() for name in batch.schema.names if name in COLUMNS}
        rows = batch.num_rows
        nothing = [None] * rows
        topics = [self.topic] * rows if self.topic is not None else columns["topic"]
        for topic, key, value, partition, headers in zip(
            topics,
            columns.get("key", nothing),
            columns["value"],
            columns.get("partition", nothing),
            columns.get("headers", nothing),
            strict=True,
        ):
            if topic is None:
                raise WrongOption("a row has no topic: its column is null, and there is no option topic")
            yield {
                "topic": topic,
                "key": key,
                "value": value,
                "partition": _ANY_PARTITION if partition is None else partition,
                "headers": None if headers is None else [(h["key"], h["value"]) for h in headers],
            }


def _produce(producer: Producer, message: dict[str, Any]) -> None:
    while True:
        try:
            producer.produce(**message)
            return
        except BufferError:
            producer.poll(_FULL_WAIT_S)


def _check(failures: list[str]) -> None:
    if failures:
        raise DeliveryFailed(f"{len(failures)} rows were not written: {failures[0]}")


class BatchWriter(DataSourceArrowWriter):
    """`df.write`."""

    def __init__(self, rows: RowsWriter) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._rows.write(iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`."""

    def __init__(self, rows: RowsWriter) -> None:
        self._rows = rows

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._rows.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do: all rows were acknowledged before their tasks ended."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Rows that were written stay written: at least once."""
