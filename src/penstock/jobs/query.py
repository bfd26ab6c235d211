"""A streaming query of a job, its end, and the errors of Spark in the words of this package."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.jobs.supervision import Guard, JvmEnded, QueryFailed, reason_of
from penstock.spark import PenstockDataSource

__all__ = [
    "LOST_JVM",
    "RunningQuery",
    "SparkError",
    "StreamSource",
    "checkpoint_of",
    "explained",
    "start_stream",
]

#: what a session of Spark raises
SparkError: Final = PySparkException
#: what PySpark raises without a JVM
LOST_JVM: Final = (Py4JError, ConnectionError)


def checkpoint_of(folder: str) -> str:
    """Where Spark keeps its own: Hadoop, which Spark reaches stores by, has another name for S3."""
    return f"{folder}/checkpoint".replace("s3://", "s3a://", 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """The topic that a query reads from its beginning."""

    bootstrap: str
    topic: str
    #: bounds the memory that a batch takes
    most_per_batch: int
    #: TLS and SASL of the cluster, by the names of Kafka's Java clients
    security: Mapping[str, str] = field(repr=False)
    #: other options of the source
    options: Mapping[str, str] = field(default_factory=dict)


def start_stream(
    spark: SparkSession,
    source: StreamSource,
    guard: Guard,
    *,
    name: str,
    checkpoint: str,
    trigger: str | None,
) -> StreamingQuery:
    """Start a query whose batches `guard` runs; it goes on where its checkpoint is.

    Without a `trigger`, the query reads the messages that there are now, and ends. QueryFailed if Spark
    cannot start it.
    """
    with explained():
        spark.dataSource.register(PenstockDataSource)
        messages = (
            spark.readStream.format("penstock")
            .option("kafka.bootstrap.servers", source.bootstrap)
            .option("subscribe", source.topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", str(source.most_per_batch))
            .options(**{f"kafka.{key}": value for key, value in source.security.items()})
            .options(**source.options)
            .load()
        )
        writer = messages.writeStream.foreachBatch(guard).queryName(name)
        writer = writer.option("checkpointLocation", checkpoint)
        timed = (
            writer.trigger(availableNow=True) if trigger is None else writer.trigger(processingTime=trigger)
        )
        return timed.start()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningQuery:
    """A query that was started, and the guard of its batches."""

    query: StreamingQuery
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

    def stop(self) -> None:
        """Stop the query. A batch that this interrupts is run again next time."""
        with explained():
            self.query.stop()


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
