"""The query: the topic through Spark into `Batches`, as a stream or until its end.

Checkpoint and state are below the tables, in a folder of the query's name. If that folder is removed, the
query starts again under a new query id, and tables accept the same messages again.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Final

import pyarrow as pa
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.security.client_names import librdkafka_names
from penstock.spark import PenstockDataSource
from penstock.telemetry.pipeline.batches import Batches, BatchReport, Settings
from penstock.telemetry.pipeline.publish import Topics
from penstock.telemetry.pipeline.supervision import Guard, JvmEnded, QueryFailed, reason_of
from penstock.telemetry.pipeline.tables import TABLES, Tables

__all__ = ["Job", "Maintenance", "SparkError", "Started", "new_session", "start", "warm_up"]

_log: Final = logging.getLogger(__name__)
#: Spark's default, and the names of Kafka's clients for logins and private keys
_REDACTED: Final = r"(?i)secret|password|token|access[.]?key|jaas|keystore[.]key|ssl[.]key"
_WORKER_DAEMON: Final = "penstock.telemetry.pipeline.worker_daemon"
#: small files of a table between two compactions
_FILES_MAX: Final = 1000
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


def new_session(master: str, name: str = "penstock-telemetry") -> SparkSession:
    """A session for the pipeline. Settings of the user (spark-submit) have precedence."""
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
    # Spark prints the options of a query in plans and logs, with the values of these left out.
    quiet = quiet.config("spark.redaction.regex", _REDACTED)
    session = quiet.config("spark.python.daemon.module", _WORKER_DAEMON).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def warm_up(spark: SparkSession) -> None:
    """Start the Python workers of the session's slots with an empty job, beside the planning of a query."""

    def run() -> None:
        slots = spark.sparkContext.defaultParallelism
        # The query starts its workers itself if this fails.
        with suppress(PySparkException, Py4JError, ConnectionError):
            spark.range(0, slots, 1, slots).mapInArrow(lambda batches: batches, "id BIGINT").toArrow()

    Thread(target=run, name="warm-up", daemon=True).start()


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
    """Raises any error of Spark's work as QueryFailed, with its cause."""
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
    topics = Topics(job.bootstrap, librdkafka_names(job.security))
    topics.create()
    topics.wait_for(job.topic, job.topic_wait_s)
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
        .options(**{f"kafka.{name}": value for name, value in job.security.items()})
        .load()
    )
    guard = Guard(batches.process)
    writer = messages.writeStream.foreachBatch(guard).queryName(job.name)
    writer = writer.option("checkpointLocation", job.checkpoint)
    timed = writer.trigger(availableNow=True) if job.until_end else writer.trigger(processingTime=job.trigger)
    return Started(timed.start(), batches, guard, job.until_end)


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
        except (PySparkException, Py4JError, ConnectionError) as error:
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
