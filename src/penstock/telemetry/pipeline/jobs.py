"""The query: the topic through Spark into `Batches`, as a stream or until its end.

Checkpoint and state are below the tables, in a folder of the query's name. If that folder is removed, the
query starts again under a new query id, and tables accept the same messages again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.reading.connection import librdkafka_settings
from penstock.spark import PenstockDataSource
from penstock.telemetry.pipeline.batches import Batches, BatchReport, PipelineBroken, Settings
from penstock.telemetry.pipeline.publish import Topics
from penstock.telemetry.pipeline.supervision import Guard, JvmEnded, QueryFailed, reason_of
from penstock.telemetry.pipeline.tables import TABLES, Tables

__all__ = ["LOST_JVM", "Job", "Maintenance", "SparkError", "Started", "explained", "start"]

_log: Final = logging.getLogger(__name__)
#: small files of a table between two compactions
_FILES_MAX: Final = 1000
#: what a session of Spark raises
SparkError: Final = PySparkException
#: what PySpark raises without a JVM
LOST_JVM: Final = (Py4JError, ConnectionError)


@dataclass(frozen=True, slots=True)
class Job:
    """The input and output of a query; the output is a directory or an object store's URL."""

    bootstrap: str
    topic: str
    tables: str
    settings: Settings
    name: str = "telemetry"
    trigger: str = "5 seconds"
    #: bounds the memory that a batch takes
    most_per_batch: int = 2_000_000
    #: read the available messages, and end
    until_end: bool = False
    #: how long to wait for a topic that does not exist yet
    topic_wait_s: float = 0.0
    #: of the object store, as deltalake has them; its environment variables do as well
    storage_options: dict[str, str] | None = None
    #: TLS and SASL of the cluster, by the names of Kafka's Java clients
    security: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def query(self) -> str:
        """The folder of all that the query remembers."""
        return f"{self.tables}/_queries/{self.name}"

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps its own: Hadoop, which Spark reaches stores by, has another name for S3."""
        return f"{self.query}/checkpoint".replace("s3://", "s3a://", 1)


@dataclass(frozen=True, slots=True)
class Started:
    """A query, and the batches that it runs."""

    query: StreamingQuery
    batches: Batches
    guard: Guard
    #: whether the query ends by itself
    until_end: bool

    def wait(self, timeout_s: int | None = None) -> bool:
        """Wait for the query's end; False if it still runs. QueryFailed if it, or the JVM, has died."""
        try:
            with explained():
                has_ended = self.query.awaitTermination(timeout_s) if timeout_s else self._await_end()
                cause: BaseException | None = self.query.exception() if has_ended else None
        except JvmEnded:
            raise
        except QueryFailed as error:
            has_ended, cause = True, error.__cause__
        # Of a batch's error Spark has a short form only.
        cause = (self.guard.error or cause) if has_ended else None
        if cause is not None:
            raise QueryFailed(f"the query has ended: {reason_of(cause)}") from cause
        if has_ended and not self.until_end:
            raise QueryFailed("the query has ended without a reason: see Spark's log")
        return bool(has_ended)

    def _await_end(self) -> bool:
        self.query.awaitTermination()
        return True

    def progress(self) -> Mapping[str, Any] | None:
        """Spark's progress report of the last batch; None before the first."""
        with explained():
            return self.query.lastProgress

    def close(self) -> None:
        """Close the windows of all that was read, after the batch that is under way.

        QueryFailed if that batch fails.
        """
        try:
            with explained():
                self.batches.close()
        except PipelineBroken:
            cause = self.guard.error
            if cause is None:
                raise
            raise QueryFailed(f"the query has ended: {reason_of(cause)}") from cause

    def stop(self) -> None:
        """Stop the query. A batch that this interrupts is run again next time."""
        with explained():
            self.query.stop()

    def complete(self) -> None:
        """Wait for a query that reads until the topic's end, and close its windows."""
        self.wait()
        self.close()


@contextmanager
def explained() -> Iterator[None]:
    """Turn each error of Spark and of the connection to its JVM into QueryFailed, with its cause."""
    try:
        yield
    except Py4JJavaError as error:
        raise QueryFailed(f"Spark has failed: {reason_of(error)}") from error
    except LOST_JVM as error:
        raise JvmEnded(f"the JVM of Spark has ended: {reason_of(error)}") from error
    except PySparkException as error:
        raise QueryFailed(f"the query has ended: {reason_of(error)}") from error


def start(spark: SparkSession, job: Job, report: Callable[[BatchReport], None]) -> Started:
    """Start the query; it goes on where its checkpoint is. QueryFailed if Spark cannot start it."""
    topics = Topics(job.bootstrap, librdkafka_settings(job.security))
    topics.create()
    topics.wait_for(job.topic, job.topic_wait_s)
    batches = Batches(
        job.tables,
        f"{job.query}/state",
        job.settings,
        topics,
        report,
        storage_options=job.storage_options,
    )
    guard = Guard(batches.process)
    with explained():
        spark.dataSource.register(PenstockDataSource)
        writer = _messages(spark, job).writeStream.foreachBatch(guard).queryName(job.name)
        writer = writer.option("checkpointLocation", job.checkpoint)
        timed = (
            writer.trigger(availableNow=True) if job.until_end else writer.trigger(processingTime=job.trigger)
        )
        return Started(timed.start(), batches, guard, job.until_end)


def _messages(spark: SparkSession, job: Job) -> DataFrame:
    return (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.most_per_batch))
        .options(**{f"kafka.{name}": value for name, value in job.security.items()})
        .load()
    )


class Maintenance:
    """Compacts and vacuums tables every so many batches, beside them, in tasks of the session.

    A table is also compacted when batches have added `_FILES_MAX` files to it, so the number of small files
    is bounded however many tasks a batch has. Maintenance takes at most a quarter of the session's slots.
    """

    def __init__(
        self,
        spark: SparkSession,
        tables: str,
        every: int,
        retention_hours: int,
        storage_options: dict[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._tables = Tables(tables, storage_options)
        self._every = every
        self._retention_hours = retention_hours
        self._added: Counter[str] = Counter()
        self._worker = ThreadPoolExecutor(1, "maintenance")
        self._running: Future[None] | None = None

    def __call__(self, report: BatchReport) -> None:
        if not self._every:
            return
        self._added.update(report.files)
        is_due = report.batch_id % self._every == self._every - 1
        many = [table for table, number in self._added.items() if number >= _FILES_MAX]
        names = list(TABLES) if is_due else many
        if names and (self._running is None or self._running.done()):
            for name in names:
                del self._added[name]
            self._running = self._worker.submit(self.run, names)

    def run(self, names: Sequence[str] = tuple(TABLES)) -> None:
        """Maintain these tables on executors; a failure is logged, and tried again in its time."""
        tables, hours = self._tables, self._retention_hours

        def maintain(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                failures = [_maintained(tables, names[number.as_py()], hours) for number in batch["id"]]
                yield pa.RecordBatch.from_pydict({"failure": pa.array(failures, pa.string())})

        slots = max(1, self._spark.sparkContext.defaultParallelism // 4)
        try:
            numbers = self._spark.range(0, len(names), 1, min(slots, len(names)))
            failures = numbers.mapInArrow(maintain, "failure STRING").toArrow()["failure"].drop_null()
        except (PySparkException, *LOST_JVM) as error:
            _log.warning("maintenance failed: %s", reason_of(error))
            return
        for failure in failures.to_pylist():
            _log.warning("maintenance of %s", failure)

    def close(self) -> None:
        self._worker.shutdown()


def _maintained(tables: Tables, name: str, retention_hours: int) -> str | None:
    """Maintain one table; the failure in words, None if there is none. The tables are right without it."""
    try:
        tables.maintain(name, retention_hours)
    except (DeltaError, OSError) as error:
        return f"{name} failed: {error}"
    return None
