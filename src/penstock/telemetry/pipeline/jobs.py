"""The query: the topic through Spark into `Batches`, as a stream or until its end.

Checkpoint and state are below the tables, in a folder of the query's name. If that folder is removed, the
query starts again under a new query id, and tables accept the same messages again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from penstock.jobs.ledger import StateBroken
from penstock.jobs.query import RunningQuery, StreamSource, checkpoint_of, explained, start_stream
from penstock.jobs.supervision import Guard, QueryFailed, reason_of
from penstock.reading.connection import librdkafka_settings
from penstock.telemetry.pipeline.batches import Batches, BatchReport, Settings
from penstock.telemetry.pipeline.publish import Topics

__all__ = ["Job", "Started", "start"]


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
    #: how long days of samples stay after them; None for ever
    keep_samples_ms: int | None = None

    @property
    def query(self) -> str:
        """The folder of all that the query remembers."""
        return f"{self.tables}/_queries/{self.name}"

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps its own."""
        return checkpoint_of(self.query)


@dataclass(frozen=True, slots=True, kw_only=True)
class Started(RunningQuery):
    """A query, and the batches that it runs."""

    batches: Batches

    def close(self) -> None:
        """Close the windows of all that was read, after the batch that is under way.

        QueryFailed if that batch fails.
        """
        try:
            with explained():
                self.batches.close()
        except StateBroken:
            cause = self.guard.error
            if cause is None:
                raise
            raise QueryFailed(f"the query has ended: {reason_of(cause)}") from cause

    def complete(self) -> None:
        """Wait for a query that reads until the topic's end, and close its windows."""
        self.wait()
        self.close()


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
    source = StreamSource(
        bootstrap=job.bootstrap,
        topic=job.topic,
        most_per_batch=job.most_per_batch,
        security=job.security,
    )
    query = start_stream(
        spark,
        source,
        guard,
        name=job.name,
        checkpoint=job.checkpoint,
        trigger=None if job.until_end else job.trigger,
    )
    return Started(query=query, guard=guard, until_end=job.until_end, batches=batches)
