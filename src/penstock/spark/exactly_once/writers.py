"""What Spark calls: `write` in tasks, `commit` and `abort` on the driver.

Spark makes a new stream writer on the driver for each commit, so nothing is kept in it: the query's id and
the transactions come with the messages of the tasks, which learn query and batch from their TaskContext.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.model.errors import PenstockError
from penstock.reading.connection import cluster_of
from penstock.spark.columns import check_columns
from penstock.spark.errors import DeliveryFailed
from penstock.spark.exactly_once.coordinators import Coordinators
from penstock.spark.exactly_once.decisions import Prepared
from penstock.spark.exactly_once.driver import Driver
from penstock.spark.exactly_once.journal import Journal
from penstock.spark.exactly_once.names import AttemptName, run_name
from penstock.spark.exactly_once.producing import TransactionalProducer
from penstock.spark.exactly_once.protocol import is_decided
from penstock.spark.exactly_once.rows import RowEncoder
from penstock.spark.exactly_once.settings import SinkSettings
from penstock.spark.exactly_once.support import check_support

__all__ = ["AttemptReport", "BatchWriter", "StreamWriter", "new_batch_writer", "new_stream_writer"]

#: the names of Spark's own local properties
_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"
#: A stream's jobs are a group with the id of its run.
_RUN: Final = "spark.jobGroup.id"
#: a batch write has one batch
_ONLY_BATCH: Final = 0
_TOKEN_BYTES: Final = 6
_log: Final = logging.getLogger(__name__)


@dataclass
class AttemptReport(WriterCommitMessage):
    """What a task attempt has written; `prepared` is None without rows, and in a decided batch."""

    query: str
    run: str
    prepared: Prepared | None


def new_stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """Checks, on the driver, that rows of `schema` can be written, and that the cluster can do it."""
    return StreamWriter(_checked(options, schema))


def new_batch_writer(options: Mapping[str, str], schema: StructType) -> BatchWriter:
    """As `new_stream_writer`; the writer is one job, with an id of its own."""
    return BatchWriter(_checked(options, schema), str(uuid4()))


def _checked(options: Mapping[str, str], schema: StructType) -> SinkSettings:
    settings = SinkSettings.parse(options)
    check_columns(schema, settings.topic)
    cluster = cluster_of(settings.endpoint)
    check_support(cluster, Coordinators(cluster), settings.names)
    Journal(cluster, settings.decisions_topic).create()
    return settings


def write_attempt(
    settings: SinkSettings, query: str, run: str, batch: int, partition: int, rows: Iterator[Any]
) -> AttemptReport:
    """Write the rows of a task attempt in a transaction of its own, and leave it open."""
    first = next((each for each in rows if each.num_rows), None)
    if first is None:
        return AttemptReport(query, run, None)
    cluster = cluster_of(settings.endpoint)
    coordinators = Coordinators(cluster)
    name = AttemptName(query, run, batch, partition, secrets.token_hex(_TOKEN_BYTES))
    me = coordinators.begin(settings.names.attempt(name), two_phase=True)
    # In this order: a driver that decides without this attempt lists its id, or the attempt sees that.
    if is_decided(Journal(cluster, settings.decisions_topic).last(query), batch):
        for _ in rows:  # Spark's writer of rows would fail if nothing reads them
            pass
        return AttemptReport(query, run, None)
    producer = TransactionalProducer(cluster, me, settings.codec)
    encoder = RowEncoder(cluster, settings.topic, settings.batch_bytes, partition)
    count = 0
    try:
        for each in chain((first,), rows):
            count += encoder.write(producer, each)
        producer.flush()
    except BaseException:
        producer.close()
        _give_up(coordinators, Prepared(*me, rows=count))
        raise
    return AttemptReport(query, run, Prepared(*me, rows=count))


def _give_up(coordinators: Coordinators, prepared: Prepared) -> None:
    """Abort the own transaction of an attempt that fails; the driver does it otherwise."""
    try:
        coordinators.abort([prepared])
    except PenstockError as e:
        _log.warning("%s is left to the driver to abort: %s", prepared.transactional_id, e)


class StreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream` with `delivery=exactly_once`."""

    def __init__(self, settings: SinkSettings) -> None:
        self._settings = settings

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = _task()
        query, batch, run = (task.getLocalProperty(name) for name in (_QUERY, _BATCH, _RUN))
        if query is None or batch is None or run is None:
            raise DeliveryFailed(f"Spark names no query, batch or run for this task: {query}, {batch}, {run}")
        partition = task.partitionId()
        return write_attempt(self._settings, query, run_name(run), int(batch), partition, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for query, prepared in _by_query(messages).items():
            self._driver().commit(query, batchId, prepared)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Without any report this run is unknown: the next run of the query aborts what it has left.
        for query, prepared in _by_query(messages).items():
            runs = {each.run for each in messages if isinstance(each, AttemptReport)}
            self._driver().abort(query, batchId, prepared, runs)

    def _driver(self) -> Driver:
        cluster = cluster_of(self._settings.endpoint)
        return Driver(cluster, self._settings.names, self._settings.decisions_topic)


class BatchWriter(DataSourceArrowWriter):
    """`df.write` with `delivery=exactly_once`: all rows or none."""

    def __init__(self, settings: SinkSettings, job: str) -> None:
        self._settings = settings
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_attempt(
            self._settings, self._job, run_name(None), _ONLY_BATCH, _task().partitionId(), iterator
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        driver = self._driver()
        driver.commit(self._job, _ONLY_BATCH, _prepared(messages))
        driver.close(self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        driver = self._driver()
        driver.abort(self._job, _ONLY_BATCH, _prepared(messages), {run_name(None)})
        driver.close(self._job)

    def _driver(self) -> Driver:
        cluster = cluster_of(self._settings.endpoint)
        return Driver(cluster, self._settings.names, self._settings.decisions_topic)


def _task() -> Any:
    task = TaskContext.get()
    if task is None:
        raise DeliveryFailed("rows are written in tasks of Spark only")
    return task


def _by_query(messages: Sequence[WriterCommitMessage | None]) -> dict[str, list[Prepared]]:
    found: dict[str, list[Prepared]] = {}
    for message in messages:
        if isinstance(message, AttemptReport):
            prepared = found.setdefault(message.query, [])
            if message.prepared is not None:
                prepared.append(message.prepared)
    return found


def _prepared(messages: Sequence[WriterCommitMessage | None]) -> list[Prepared]:
    return [each for some in _by_query(messages).values() for each in some]
