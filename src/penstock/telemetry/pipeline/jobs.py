"""The query: the topic through Spark into `Batches`, as a stream or until its end.

Checkpoint and state are below the tables, in a folder of the query's name. If that folder is removed, the
query starts again under a new query id, and tables accept the same messages again.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.spark import PenstockDataSource
from penstock.telemetry.pipeline.batches import Batches, BatchReport, Settings
from penstock.telemetry.pipeline.publish import Topics
from penstock.telemetry.pipeline.supervision import Guard, JvmEnded, QueryFailed, reason_of
from penstock.telemetry.pipeline.tables import TABLES, Tables

__all__ = ["Job", "Maintenance", "SparkError", "Started", "new_session", "start"]

_log: Final = logging.getLogger(__name__)
#: what a session of Spark raises
SparkError: Final = PySparkException


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
    #: read what there is, and end
    until_end: bool = False
    #: of the object store, as deltalake has them; its environment variables do as well
    storage_options: dict[str, str] | None = None

    @property
    def query(self) -> str:
        """The folder of all that the query remembers."""
        return f"{self.tables}/_queries/{self.name}"

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps its own: Hadoop, which Spark reaches stores by, has another name for S3."""
        return f"{self.query}/checkpoint".replace("s3://", "s3a://", 1)


def new_session(master: str, name: str = "penstock-telemetry") -> SparkSession:
    """A session for the pipeline. What the user has configured otherwise (spark-submit) stays."""
    # Workers must be the interpreter that has this package.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
    if master:
        builder = builder.master(master)
    if master.startswith("local"):
        builder = builder.config("spark.driver.host", "127.0.0.1").config(
            "spark.driver.bindAddress", "127.0.0.1"
        )
    quiet = builder.config("spark.ui.showConsoleProgress", "false").config("spark.ui.enabled", "false")
    session = quiet.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


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
            with _explained():
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
        with _explained():
            return self.query.lastProgress

    def close(self) -> None:
        """Close the windows of all that was read, after the batch that is under way."""
        with _explained():
            self.batches.close()

    def complete(self) -> None:
        """Wait for a query that reads until the topic's end, and close its windows."""
        self.wait()
        self.close()


@contextmanager
def _explained() -> Iterator[None]:
    """Whatever ends Spark's work as QueryFailed, with its cause."""
    try:
        yield
    except Py4JJavaError as error:
        raise QueryFailed(f"Spark has failed: {reason_of(error)}") from error
    except (Py4JError, ConnectionError) as error:
        raise JvmEnded(f"the JVM of Spark has ended: {reason_of(error)}") from error
    except PySparkException as error:
        raise QueryFailed(f"the query has ended: {reason_of(error)}") from error


def start(spark: SparkSession, job: Job, report: Callable[[BatchReport], None]) -> Started:
    """Start the query; it goes on where its checkpoint is."""
    topics = Topics(job.bootstrap)
    topics.create()
    spark.dataSource.register(PenstockDataSource)
    batches = Batches(
        job.tables,
        f"{job.query}/state",
        job.settings,
        topics,
        report,
        storage_options=job.storage_options,
    )
    messages = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", job.bootstrap)
        .option("subscribe", job.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", str(job.most_per_batch))
        .load()
    )
    guard = Guard(batches.process)
    writer = messages.writeStream.foreachBatch(guard).queryName(job.name)
    writer = writer.option("checkpointLocation", job.checkpoint)
    timed = writer.trigger(availableNow=True) if job.until_end else writer.trigger(processingTime=job.trigger)
    return Started(timed.start(), batches, guard, job.until_end)


class Maintenance:
    """Compacts and vacuums every so many batches, beside them: a stream does not wait for it."""

    def __init__(
        self, tables: str, every: int, retention_hours: int, storage_options: dict[str, str] | None = None
    ) -> None:
        self._tables = Tables(tables, storage_options)
        self._every = every
        self._retention_hours = retention_hours
        self._worker = ThreadPoolExecutor(1, "maintenance")

    def __call__(self, report: BatchReport) -> None:
        if self._every and report.batch_id % self._every == self._every - 1:
            self._worker.submit(self.run)

    def run(self) -> None:
        for table in TABLES:
            try:
                self._tables.maintain(table, self._retention_hours)
            except (DeltaError, OSError) as error:
                # It is tried again in its time; the tables are right without it.
                _log.warning("maintenance of %s failed: %s", table, error)

    def close(self) -> None:
        self._worker.shutdown()
