"""The query of a table: its topic through Spark into `TableBatches`, as a stream or until its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from penstock.jobs.delta import DeltaTables
from penstock.jobs.query import RunningQuery, StreamSource, checkpoint_of, start_stream
from penstock.jobs.supervision import Guard, Transient
from penstock.reading.connection import librdkafka_settings
from penstock.registry.settings import RegistrySettings
from penstock.tables.batches import Batch, Decoders, TableBatches
from penstock.tables.definition import TableDefinition
from penstock.values.decoding import JsonDecoder, RegistryDecoder

__all__ = ["TableJob", "TableMaintenance", "decoders_of", "start", "topic_id_of"]

_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class TableJob:
    """A table, and how its query runs."""

    definition: TableDefinition
    bootstrap: str
    trigger: str = "10 seconds"
    #: bounds the memory that a batch takes
    most_per_batch: int = 500_000
    #: of a batch of an upsert table
    tasks: int = 2
    #: read the available messages, and end
    until_end: bool = False
    #: go on without messages that retention has removed before they were read
    skip_lost: bool = False
    #: of the object store, as deltalake has them; its environment variables do as well
    storage_options: dict[str, str] | None = None
    #: TLS and SASL of the cluster, by the names of Kafka's Java clients
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    registry: RegistrySettings | None = None


def decoders_of(definition: TableDefinition, registry: RegistrySettings | None) -> Decoders:
    """How values and keys are decoded."""
    by_registry = None if registry is None else RegistryDecoder(registry)
    uses = definition.schema == "registry"
    assert by_registry is not None or not (uses or definition.key == "registry"), "the settings are missing"
    values = by_registry if uses and by_registry is not None else JsonDecoder()
    return Decoders(values, by_registry if definition.key == "registry" else None)


def topic_id_of(admin: Any, topic: str) -> str | None:
    """The id of a topic; None where there is no such topic, or no topic ids. Transient without an answer."""
    try:
        described = admin.describe_topics(TopicCollection([topic]), request_timeout=_TIMEOUT_S)
        found = described[topic].result(2 * _TIMEOUT_S).topic_id
    except TimeoutError as error:
        raise Transient(f"topic {topic}: no response in time") from error
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise Transient(f"topic {topic}: {error.args[0].str()}") from error
    is_zero = found is None or not (found.get_most_significant_bits() or found.get_least_significant_bits())
    return None if is_zero else str(found)


def start(spark: SparkSession, job: TableJob, report: Callable[[Batch], None]) -> RunningQuery:
    """Start the query; it goes on where its checkpoint is. QueryFailed if Spark cannot start it."""
    definition = job.definition
    admin = AdminClient(
        {**librdkafka_settings(job.security), "bootstrap.servers": job.bootstrap, "log_level": "2"}
    )
    batches = TableBatches(
        definition,
        decoders_of(definition, job.registry),
        lambda: int(time.time() * 1000),
        report,
        tasks=job.tasks,
        storage_options=job.storage_options,
        topic_id=lambda: topic_id_of(admin, definition.topic),
    )
    batches.check()
    guard = Guard(batches.process)
    source = StreamSource(
        bootstrap=job.bootstrap,
        topic=definition.topic,
        most_per_batch=job.most_per_batch,
        security=job.security,
        options={
            "columns": "key,value,topic,partition,offset,timestamp",
            "kafka.isolation.level": "read_committed",
            "failOnDataLoss": "false" if job.skip_lost else "true",
        },
    )
    return RunningQuery(
        query=start_stream(
            spark,
            source,
            guard,
            name=f"table-{definition.name}",
            checkpoint=checkpoint_of(f"{definition.root}/{definition.state}"),
            trigger=None if job.until_end else job.trigger,
        ),
        guard=guard,
        until_end=job.until_end,
    )


class TableMaintenance(DeltaTables):
    """Maintains a table and its dead letters; sent to executors.

    Each file of an upsert table is all of its bucket: there are no small files to put together.
    """

    __slots__ = ("_compacted",)

    def __init__(self, definition: TableDefinition, storage_options: dict[str, str] | None) -> None:
        super().__init__(definition.root, storage_options)
        self._compacted: Sequence[str] = [definition.dead_letters]
        if definition.mode == "append":
            self._compacted = [definition.folder, definition.dead_letters]

    def maintain(self, table: str, retention_hours: int) -> None:
        """Put small files together, and remove those that no reader can still want."""
        self.tidy(table, retention_hours, compact=table in self._compacted)
