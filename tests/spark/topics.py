"""Topics to read from: filled, cut, widened; and the data source without Spark around it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import BinaryType, StructType

from penstock.spark import PenstockDataSource

__all__ = ["Topics", "batch_rows", "schema", "source", "task_rows"]


class Topics:
    """What tests do to topics."""

    def __init__(self, bootstrap: str, security: Mapping[str, str] | None = None) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **(security or {})})

    def fill(self, topic: str, values: Iterable[bytes | None], partition: int = 0, **fields: Any) -> None:
        """One message for each value; `fields` are those of `Producer.produce`."""
        settings = {
            "bootstrap.servers": self.bootstrap,
            "message.max.bytes": 8 << 20,
            "log_level": 2,
            # Messages stay in order if a new topic has no leader yet, and the first of them are sent again.
            "max.in.flight.requests.per.connection": 1,
        }
        errors: list[Any] = []
        config = (
            settings | fields.pop("settings", {}) | {"on_delivery": lambda error, _: errors.append(error)}
        )
        producer = Producer(config)
        for value in values:
            producer.produce(topic, value, partition=partition, **fields)
        assert producer.flush(120) == 0
        assert not any(errors), errors

    def create(self, topic: str, partitions: int, **configs: str) -> None:
        """In the names of configs, `_` stands for `.`."""
        config = {key.replace("_", "."): value for key, value in configs.items()}
        self._admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(60)

    def widen(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(60)

    def cut(self, topic: str, partition: int, before: int) -> None:
        """As retention does it: records before an offset are gone."""
        (done,) = self._admin.delete_records([TopicPartition(topic, partition, before)]).values()
        done.result(60)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(60)

    def configure(self, topic: str, **configs: str) -> None:
        """In the names of configs, `_` stands for `.`."""
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in configs.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for done in self._admin.incremental_alter_configs([resource]).values():
            done.result(60)

    def compact(self, topic: str, left: list[int]) -> None:
        """Have partition 0 compacted, until these are the offsets left of what it holds now."""
        configs = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0"}
        self.configure(topic, segment_ms="1", segment_bytes="1048576", **configs)
        kept: list[int] = []
        deadline = time.monotonic() + 60
        while kept != left:
            assert time.monotonic() < deadline, f"it was not compacted: {kept}"
            # It rolls the segment with what came before, which only then can be cleaned.
            self.fill(topic, [b"0"], key=b"last")
            rows = batch_rows(self.bootstrap, subscribe=topic)
            kept = sorted(row["offset"] for row in rows if row["key"] != b"last")


def schema(
    *,
    value: StructType | None = None,
    headers: bool = False,
    raw: bool = False,
    columns: str | None = None,
) -> StructType:
    """The columns as Spark would hand them to a reader; of the types only the value's matters there."""
    names = ["key", "value", *(["malformed"] if value is not None else []), *(["raw"] if raw else [])]
    names += ["topic", "partition", "offset", "timestamp", "timestampType", *(["headers"] if headers else [])]
    made = StructType()
    for name in names if columns is None else [name for name in names if name in columns.split(",")]:
        made.add(name, value if name == "value" and value is not None else BinaryType())
    return made


def source(bootstrap: str, **options: str) -> PenstockDataSource:
    """In the names of options, `__` stands for `.`."""
    config = {key.replace("__", "."): value for key, value in options.items()}
    return PenstockDataSource(CaseInsensitiveDict({"kafka.bootstrap.servers": bootstrap} | config))


def task_rows(reader: Any, tasks: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """What all tasks of a batch read."""
    for task in tasks:
        for rows in reader.read(task):
            rows.validate(full=True)
            yield from rows.to_pylist()


def batch_rows(bootstrap: str, **options: str) -> list[dict[str, Any]]:
    """A batch query's rows, in no order that Spark would promise."""
    headers = options.get("includeHeaders") == "true"
    reader = source(bootstrap, **options).reader(schema(headers=headers, columns=options.get("columns")))
    return list(task_rows(reader, reader.partitions()))
