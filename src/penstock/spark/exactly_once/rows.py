"""Rows of Arrow batches to record batches of a producer: topics, partitions, and encoded columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.model.errors import ApiError, ErrorCode
from penstock.reading.connection import Cluster
from penstock.spark.errors import WrongOption
from penstock.spark.exactly_once.encoding import chunks, encode_headers
from penstock.spark.exactly_once.partitions import partitions_of
from penstock.spark.exactly_once.producing import TransactionalProducer

__all__ = ["RowEncoder"]


class RowEncoder:
    """Writes the rows of one task attempt; `turn` chooses the first partition of rows without a key."""

    def __init__(self, cluster: Cluster, topic: str | None, batch_bytes: int, turn: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._batch_bytes = batch_bytes
        self._turn = turn

    def write(self, producer: TransactionalProducer, rows: Any) -> int:
        """Give all rows to the producer; returns their number."""
        if self._topic is not None:
            self._write_topic(producer, self._topic, rows)
        else:
            column = rows.column("topic")
            if column.null_count:
                raise WrongOption("a row has no topic: its column is null, and there is no option topic")
            for topic in pc.unique(column).to_pylist():
                self._write_topic(producer, topic, rows.filter(pc.equal(column, topic)))
        producer.send()
        return int(rows.num_rows)

    def _write_topic(self, producer: TransactionalProducer, topic: str, rows: Any) -> None:
        names = rows.schema.names
        values = _binary(rows.column("value"))
        keys = _binary(rows.column("key")) if "key" in names else None
        headers = encode_headers(rows.column("headers")) if "headers" in names else None
        named = rows.column("partition") if "partition" in names else None
        self._turn += 1
        if keys is None and named is None:
            partitions = np.full(len(values), self._turn % self._partitions(topic), np.int64)
        else:
            partitions = partitions_of(keys, named, self._partitions(topic), self._turn, topic)
        for partition, records, count in chunks(keys, values, headers, partitions, self._batch_bytes):
            producer.add(topic, partition, records, count)

    def _partitions(self, topic: str) -> int:
        count = self._cluster.view.partitions(topic)
        if not count:
            self._cluster.refresh([topic])
            count = self._cluster.view.partitions(topic)
        if not count:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {topic}")
        return count


def _binary(column: Any) -> Any:
    return column if column.type == pa.binary() else column.cast(pa.binary())
